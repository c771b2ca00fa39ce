"""Servers over the network of this machine, for embedders, and the session without a server.

    python -m loadtests.compare servers                    the rows of docs/benchmarks.md
    python -m loadtests.compare servers --model minilm --peer litserve --traffic serve-real-32

All have the same client on the same processors; texts go in one a request, and vectors come out.
"""

from loadtests.compare.encoders import ENCODERS, write_encoder
from loadtests.compare.model_contest import ModelContest
from loadtests.compare.server_peers import our_servers, server_peers
from loadtests.compare.server_traffic import SERVER_TRAFFIC

SERVER_CONTEST = ModelContest(
    {name: ENCODERS[name].title for name in SERVER_TRAFFIC},
    write_encoder,
    our_servers,
    server_peers,
    SERVER_TRAFFIC,
)

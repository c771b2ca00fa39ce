"""Random folders are of models whose weights are all different, as those that people bring."""

from pathlib import Path

from safetensors import safe_open

from loadtests.load.random_folders import write_folder


def test_no_two_matrices_of_a_random_folder_are_equal(tmp_path: Path) -> None:
    """In any number of shards: equal ones would be written and kept once."""
    folder = write_folder(tmp_path, "tiny", shard_bytes=100_000)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 2
    contents: list[bytes] = []
    for shard in shards:
        with safe_open(shard, "pt") as tensors:
            names = [name for name in tensors.keys() if "norm" not in name]  # noqa: SIM118
            contents += [tensors.get_tensor(name).float().numpy().tobytes() for name in names]
    assert len(set(contents)) == len(contents)

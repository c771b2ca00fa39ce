"""Names of the files of a folder of transformers. Looking at one needs no torch."""

CONFIG_FILE, MODULES_FILE = "config.json", "modules.json"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREPROCESSOR_FILE = "preprocessor_config.json"  # of images
HEAD_FILES = "sparse_linear.pt", "colbert_linear.pt"  # of BGE-M3
# Of tokenizers without tokenizer.json; the first that fits is read. Mistral numbers its own.
OTHER_TOKENIZERS = (
    *("tekken.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model"),
    *("sentencepiece.model", "tokenizer.model.v*", "tiktoken.model", "*.tiktoken"),
)
WEIGHTS_FILE = "model.safetensors"
PICKLED_FILE = "pytorch_model.bin"  # taken where there is no other
INDEX_FILE = "model.safetensors.index.json"  # of weights in several files
PICKLED_INDEX_FILE = "pytorch_model.bin.index.json"
WEIGHT_FORMS = (WEIGHTS_FILE, INDEX_FILE, PICKLED_FILE, PICKLED_INDEX_FILE)  # the first is read
KEPT_FILE = "rounded.safetensors"  # of our own checkpoints: weights as they were rounded

"""A weight as programs that round store it, and the floating point numbers that it then stands for.

The forms are those of the programs' own files, which `tests/models/checkpoints/rounded` compares.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Stored = tuple[dict[str, Tensor], Tensor]
GROUP = 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
    *(0.7229568362236023, 1.0),
)
BLOCK = 64  # of bitsandbytes and HQQ


def words(codes: Tensor) -> Tensor:
    """Eight codes of four bits in a word, the first lowest, along the last dimension."""
    packed = torch.zeros(*codes.shape[:-1], codes.shape[-1] // 8, dtype=torch.int64)
    for place in range(8):
        packed |= codes[..., place::8].long() << 4 * place
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


def _by_groups(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes from 0 to 15 around 8, scales [outputs, groups] in float16, and the values."""
    grouped = weight.reshape(weight.shape[0], -1, GROUP)
    scales = (grouped.abs().amax(-1, keepdim=True) / 7).half()
    codes = (grouped / scales.float()).round().clamp(-8, 7)
    values = (codes * scales.float()).reshape(weight.shape)
    return (codes + 8).reshape(weight.shape).long(), scales[..., 0], values


def gptq(weight: Tensor) -> Stored:
    codes, scales, values = _by_groups(weight)
    zeros = torch.full_like(scales.T, 7, dtype=torch.int64)
    stored = {
        "qweight": words(codes).T.contiguous(),
        "qzeros": words(zeros),
        "scales": scales.T.contiguous(),
        "g_idx": (torch.arange(weight.shape[1]) // GROUP).to(torch.int32),
    }
    return stored, values


def awq(weight: Tensor) -> Stored:
    codes, scales, values = _by_groups(weight)
    ordered = codes.T.reshape(codes.shape[1], -1, 8)[..., list(AWQ_ORDER)].flatten(-2)
    zeros = torch.full_like(scales.T, 8, dtype=torch.int64)
    return {
        "qweight": words(ordered),
        "qzeros": words(zeros),
        "scales": scales.T.contiguous(),
    }, values


def packed(weight: Tensor) -> Stored:
    codes, scales, values = _by_groups(weight)
    shape = torch.tensor(weight.shape)
    return {"weight_packed": words(codes), "weight_scale": scales, "weight_shape": shape}, values


def int8(weight: Tensor) -> Stored:
    scale = weight.abs().amax(1, keepdim=True) / 127
    codes = (weight / scale).round().to(torch.int8)
    return {"weight": codes, "weight_scale": scale}, codes * scale


def fp8(weight: Tensor) -> Stored:
    scale = weight.abs().amax() / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    blocks = [-(-size // 16) for size in weight.shape]
    return {
        "weight": codes,
        "weight_scale_inv": scale.expand(blocks).clone(),
    }, codes.float() * scale


def bnb8(weight: Tensor) -> Stored:
    largest = weight.abs().amax(1)
    codes = (weight / largest[:, None] * 127).round().to(torch.int8)
    return {"weight": codes, "SCB": largest}, codes * largest[:, None] / 127


def bnb4(weight: Tensor) -> Stored:
    table, flat = torch.tensor(NF4), weight.reshape(-1, BLOCK)
    largest = flat.abs().amax(1, keepdim=True)
    codes = (flat / largest)[..., None].sub(table).abs().argmin(-1)
    halves = codes.flatten().to(torch.uint8)
    state = {"quant_type": "nf4", "blocksize": BLOCK, "dtype": "float32"}
    text = json.dumps({**state, "shape": list(weight.shape)}).encode()
    stored = {
        "weight": (halves[::2] << 4 | halves[1::2])[:, None],
        "weight.absmax": largest[:, 0],
        "weight.quant_map": table,
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(text), dtype=torch.uint8),
    }
    return stored, (table[codes] * largest).reshape(weight.shape)


def hqq(weight: Tensor) -> Stored:
    flat = weight.reshape(-1, BLOCK)
    low = flat.amin(1, keepdim=True)
    scale = (flat.amax(1, keepdim=True) - low) / 15
    zero = (-low / scale).round()
    codes = (flat / scale + zero).round().clamp(0, 15)
    high, rest = codes.to(torch.uint8).chunk(2)
    numbers = {"nbits": 4, "axis": 1, "group_size": BLOCK}
    stored = {
        "W_q": high << 4 | rest,
        "scale": scale,
        "zero": zero,
        "shape": torch.tensor(weight.shape),
        **{name: torch.tensor(number) for name, number in numbers.items()},
    }
    return stored, ((codes - zero) * scale).reshape(weight.shape)


def torchao(weight: Tensor) -> Stored:
    scale = weight.abs().amax(1, keepdim=True) / 127
    codes = (weight / scale).round().to(torch.int8)
    return {"_weight_qdata": codes, "_weight_scale": scale}, codes * scale


def mlx(weight: Tensor) -> Stored:
    grouped = weight.reshape(weight.shape[0], -1, GROUP)
    low = grouped.amin(-1, keepdim=True)
    scale = (grouped.amax(-1, keepdim=True) - low) / 15
    codes = ((grouped - low) / scale).round()
    stored = {
        "weight": words(codes.reshape(weight.shape)).view(torch.uint32),
        "scales": scale[..., 0],
        "biases": low[..., 0],
    }
    return stored, (codes * scale + low).reshape(weight.shape)


def compressed(form: str, bits: int) -> dict[str, Any]:
    weights = {"num_bits": bits, "group_size": GROUP if bits == 4 else None}
    groups = {"group_0": {"weights": weights, "targets": ["Linear"]}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


Way = tuple[Callable[[Tensor], Stored] | None, dict[str, Any]]
# What stores a matrix, and what config.json declares; None of forms that are refused by name.
WAYS: Mapping[str, Way] = {
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}),
    "ct_w4a16": (packed, compressed("pack-quantized", 4)),
    "ct_w8a8": (int8, compressed("int-quantized", 8)),
    "fp8": (fp8, {"quant_method": "fp8", "weight_block_size": [16, 16]}),
    "bnb8": (bnb8, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    "bnb4": (bnb4, {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    "hqq": (hqq, {"quant_method": "hqq", "quant_config": {}}),
    "mlx": (mlx, {"bits": 4, "group_size": GROUP}),
    "mxfp4": (None, {"quant_method": "mxfp4"}),
    "quark": (None, {"quant_method": "quark"}),
    "torchao": (
        torchao,
        {
            "quant_method": "torchao",
            "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}},
        },
    ),
}

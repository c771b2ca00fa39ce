"""Forms in which programs store rounded weights, each as a function that reads one weight.

A function gets the tensors of one weight by the ends of their names and returns it as whole numbers
and scales, [outputs, inputs], or as floats where it has no whole numbers. It raises KeyError for a
tensor that is missing and ValueError for shapes that contradict one another. Layouts are those of
the programs' own files: AutoGPTQ 0.7 and GPTQModel, AutoAWQ 0.2, compressed-tensors 0.9 to 0.15,
transformers' fine-grained FP8, NVIDIA's Model Optimizer, bitsandbytes 0.45, HQQ 0.2, MLX 0.30
and torchao 0.18.
"""

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from models.checkpoints.rounded.packing import (
    WORD_BITS,
    doubled_e2m1,
    halves,
    power_of_two,
    spread,
    unpacked,
)
from models.checkpoints.rounded.stored import Stored

Parts = Mapping[str, Tensor]  # by what follows the weight's name
Settings = Mapping[str, Any]
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # places, within a word, of numbers in their own order
# Tensors whose values say the shape of a weight, and are read with the headers of a file.
SIZES = ("weight_shape", "nbits", "axis", "shape", "group_size")
NF4_STATES = ("weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4")
OF_SHAPES = tuple(f".{end}" for end in (*SIZES, *NF4_STATES))


def gptq(parts: Parts, settings: Settings) -> Stored:
    """Words along the inputs, zero points along the outputs, groups by `g_idx`.

    Zero points of `checkpoint_format` gptq are stored less one; those of gptq_v2 are not.
    """
    scales, packed_zeros = parts["scales"], parts["qzeros"]
    _check_matrix("qweight", parts["qweight"])
    num_groups, num_outputs = scales.shape
    bits = packed_zeros.shape[1] * WORD_BITS // num_outputs
    codes = unpacked(parts["qweight"].mT.contiguous(), bits)
    zeros = unpacked(packed_zeros, bits)
    if settings.get("checkpoint_format", "gptq") != "gptq_v2":
        zeros = (zeros + 1) & ((1 << bits) - 1)
    num_inputs = codes.shape[1]
    groups = parts.get("g_idx")
    if groups is None:
        groups = _groups(codes, num_groups, settings)
    _check_same("g_idx", (num_inputs,), tuple(groups.shape))
    groups = groups.long()
    _check_groups("g_idx", groups, num_groups)
    return Stored(codes, bits, scales.mT, zeros.mT, groups=groups)


def awq(parts: Parts, settings: Settings) -> Stored:
    """Words of eight numbers along the outputs, in the order that AWQ's kernel reads them in."""
    codes, zeros = (_awq_unpacked(parts[name]) for name in ("qweight", "qzeros"))
    scales, codes = parts["scales"], codes.mT.contiguous()
    groups = _groups(codes, scales.shape[0], settings)
    _check_same("qzeros", tuple(scales.shape), tuple(zeros.shape))
    return Stored(codes, 4, scales.mT, zeros.mT, groups=groups)


def _groups(codes: Tensor, num_groups: int, settings: Settings) -> Tensor:
    """The group of each input where groups follow one another."""
    num_inputs = codes.shape[1]
    places = torch.arange(num_inputs, device=codes.device)
    return places // _group_size(num_inputs, num_groups, settings)


def _awq_unpacked(words: Tensor) -> Tensor:
    codes = unpacked(words, 4)
    places = torch.tensor(AWQ_ORDER, device=words.device)
    return codes.reshape(*codes.shape[:-1], -1, len(AWQ_ORDER))[..., places].flatten(-2)


def packed(parts: Parts, settings: Settings) -> Stored:
    """Words along the inputs with half of the range added, of compressed-tensors."""
    words, scales = parts["weight_packed"], parts["weight_scale"]
    if words.dtype == torch.uint8:
        return _of_four_bits(parts)
    num_outputs, num_inputs = (int(size) for size in parts["weight_shape"].tolist())
    bits = _bits_of(words.shape, (num_outputs, num_inputs), settings)
    middle = 1 << (bits - 1)
    codes = unpacked(words, bits)[:, :num_inputs] - middle
    zeros = parts.get("weight_zero_point")
    if zeros is not None and zeros.dtype == torch.int32:  # packed along the outputs
        zeros = unpacked(zeros.mT.contiguous(), bits)[:, :num_outputs].mT - middle
    groups = parts.get("weight_g_idx")
    if groups is not None and (groups.is_meta or bool((groups >= 0).all())):
        _check_same("weight_g_idx", (num_inputs,), tuple(groups.shape))
        groups = groups.long()
        _check_groups("weight_g_idx", groups, scales.shape[1])
    else:
        groups = None
    return Stored(codes, bits, scales, zeros, groups=groups)


def _bits_of(words: torch.Size, shape: tuple[int, int], settings: Settings) -> int:
    """Bits that the settings state and that a matrix of the shape is packed to the words by."""
    num_outputs, num_inputs = shape
    stated = sorted({int(group["num_bits"]) for group in _weight_groups(settings)})
    for bits in stated:
        if tuple(words) == (num_outputs, -(-num_inputs * bits // WORD_BITS)):
            return bits
    raise ValueError(
        f"weight_shape is {list(shape)}, but weight_packed of shape {list(words)} does not hold "
        f"that many numbers of {' or '.join(map(str, stated)) or 'unknown'} bits"
    )


def _weight_groups(settings: Settings) -> list[Mapping[str, Any]]:
    return [group["weights"] for group in _all_groups(settings) if group.get("weights")]


def _all_groups(settings: Settings) -> list[Mapping[str, Any]]:
    return list((settings.get("config_groups") or {}).values())


def _of_four_bits(parts: Parts) -> Stored:
    """NVFP4 and MXFP4 of compressed-tensors and of Model Optimizer: E2M1 by blocks of 16 or 32."""
    codes = halves(parts["weight_packed"], is_low_first=True)
    scales = parts["weight_scale"]
    scales = scales if scales.is_floating_point() else power_of_two(scales)
    if "weight_global_scale" in parts:
        scales = scales / parts["weight_global_scale"]
    if "weight_scale_2" in parts:
        scales = scales * parts["weight_scale_2"]
    return Stored(doubled_e2m1(codes), 4, scales, halved=2)


def scaled(parts: Parts, settings: Settings) -> Stored | Tensor:
    """int8 or FP8 numbers with scales of the matrix, of its rows, or of blocks.

    `weight_scale_inv` is multiplied by, as `weight_scale` is.
    """
    weight = parts["weight"]
    scales = parts["weight_scale_inv"] if "weight_scale_inv" in parts else parts["weight_scale"]
    if weight.dtype == torch.uint8:
        return _of_four_bits({**parts, "weight_packed": weight})
    block = settings.get("weight_block_size")
    for group in _weight_groups(settings):
        block = group.get("block_structure") or block
    sizes = (int(block[0]), int(block[1])) if block and scales.ndim == 2 else None
    scales, zeros = power_of_two(scales), parts.get("weight_zero_point")
    if weight.is_floating_point():
        shape = (weight.shape[0], weight.shape[1])
        weight = weight if zeros is None else weight - spread(zeros, shape, sizes)
        return weight * spread(scales, shape, sizes)
    rounds = any(group.get("input_activations") for group in _all_groups(settings))
    return Stored(weight, 8, scales, zeros, block=sizes, rounds_rows=rounds)


def four_bits(parts: Parts, _settings: Settings) -> Stored | Tensor:
    """nf4 and fp4 of bitsandbytes: codes of a table, the first of two in the high half of a byte.

    The largest values of blocks may be rounded themselves, by a table and blocks of their own.
    """
    state_name = next((name for name in NF4_STATES if name in parts), NF4_STATES[0])
    state = json.loads(bytes(parts[state_name].to(torch.uint8).tolist()))
    largest = parts["weight.absmax"]
    if "weight.nested_absmax" in parts:
        table, outer = parts["weight.nested_quant_map"], parts["weight.nested_absmax"]
        blocks = torch.arange(largest.numel(), device=outer.device) // int(
            state["nested_blocksize"]
        )
        largest = table[largest.long()] * outer[blocks] + float(state["nested_offset"])
    codes = halves(parts["weight"].flatten(), is_low_first=False)
    shape = [int(size) for size in state["shape"]]
    if codes.numel() != torch.Size(shape).numel():
        raise ValueError(f"{codes.numel()} numbers are stored of the shape {shape}")
    table, size = parts["weight.quant_map"], int(state["blocksize"])
    if len(shape) == 2 and shape[1] % size == 0:
        return Stored(codes.reshape(shape), 4, largest.reshape(shape[0], -1), values=table)
    places = torch.arange(codes.numel(), device=codes.device) // size  # across rows
    flat = Stored(codes[None], 4, largest.reshape(1, -1), groups=places, values=table)
    return flat.floats().reshape(shape)


def rows(parts: Parts, _settings: Settings) -> Stored:
    """int8 of bitsandbytes: SCB has the largest value of each row, which 127 stands for."""
    scales = parts["SCB"].reshape(-1, 1)
    _check_same("SCB", (parts["weight"].shape[0], 1), tuple(scales.shape))
    return Stored(parts["weight"], 8, scales / 127)


def hqq(parts: Parts, _settings: Settings) -> Stored | Tensor:
    """HQQ's groups of one axis: the first half of the rows is in the high bits of a byte."""
    bits, axis = int(parts["nbits"]), int(parts["axis"])
    shape = [int(size) for size in parts["shape"].tolist()]
    words = parts["W_q"]
    if bits == 3:  # ten rows in each word, whose two highest bits stay free
        codes = torch.cat([(words >> (27 - 3 * index)) & 7 for index in range(10)])
    else:
        codes = torch.cat(
            [(words >> (8 - bits * (index + 1))) & ((1 << bits) - 1) for index in range(8 // bits)]
        )
    size, count = int(parts["group_size"]), torch.Size(shape).numel()
    codes = codes[: size if axis == 0 else count // size]
    scales, zeros = parts["scale"], parts["zero"]
    if axis == 1 and len(shape) == 2 and shape[1] % size == 0:
        by_rows = (shape[0], -1)
        return Stored(codes.reshape(shape), bits, scales.reshape(by_rows), zeros.reshape(by_rows))
    return ((codes - zeros) * scales).reshape(shape)


def mlx(parts: Parts, settings: Settings) -> Stored:
    """MLX's affine groups: words along the inputs, scale and bias of each group."""
    scales, biases = parts["scales"], parts["biases"]
    rounding = settings["of"]  # of this weight
    bits, size = int(rounding["bits"]), int(rounding["group_size"])
    codes = unpacked(parts["weight"], bits)
    shape = (codes.shape[0], codes.shape[1])
    _check_same("scales", (shape[0], shape[1] // size), tuple(scales.shape))
    return Stored(codes, bits, scales, biases=biases)


def torchao(parts: Parts, settings: Settings) -> Stored | Tensor:
    """Tensors of torchao, flattened by name: whole numbers in bytes, or two in one.

    Of two in one, the lower half is the first, and what is added to a group is no whole number.
    """
    codes, scales = parts["_weight_qdata"], parts["_weight_scale"]
    zeros = parts.get("_weight_zero_point")
    _check_matrix("_weight_qdata", codes)
    if codes.is_floating_point():
        return codes * spread(scales, (codes.shape[0], codes.shape[1]))
    kind = settings.get("quant_type", {}).get("default", {})
    if zeros is not None and zeros.is_floating_point():
        signed = (halves(codes.view(torch.uint8), is_low_first=True) ^ 8).to(torch.int8) - 8
        _check_same("_weight_scale", (scales.shape[0], len(codes)), tuple(scales.shape))
        return Stored(signed, 4, scales.mT, biases=zeros.mT)
    rounds_rows = kind.get("_type") == "Int8DynamicActivationInt8WeightConfig"
    dtype = str(kind.get("_data", {}).get("weight_dtype", {}).get("_data", "int8"))
    bits = int(dtype.removeprefix("int"))
    return Stored(codes, bits, scales, zeros, rounds_rows=rounds_rows)


def _group_size(num_inputs: int, num_groups: int, settings: Settings) -> int:
    size = int(settings.get("group_size", -1))
    size = num_inputs if size <= 0 else size
    if -(-num_inputs // size) != num_groups:
        if num_inputs % num_groups:
            raise ValueError(f"{num_groups} groups cannot be those of {num_inputs} inputs")
        size = num_inputs // num_groups
    return size


def _check_groups(name: str, groups: Tensor, num_groups: int) -> None:
    if groups.is_meta:
        return
    if int(groups.min()) < 0 or int(groups.max()) >= num_groups:
        raise ValueError(f"{name} names groups outside of 0 to {num_groups - 1}")


def check_filled(parts: Parts) -> None:
    for name, tensor in parts.items():
        if not tensor.numel():
            raise ValueError(f"{name} has no numbers")


def _check_matrix(name: str, tensor: Tensor) -> None:
    if tensor.ndim != 2:
        raise ValueError(f"{name} has the shape {list(tensor.shape)}, expected two sizes")


def _check_same(name: str, expected: tuple[int, ...], found: tuple[int, ...]) -> None:
    if expected != found:
        raise ValueError(f"{name} has the shape {list(found)}, but must have {list(expected)}")

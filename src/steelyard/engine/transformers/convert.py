"""A GGUF file of a Llama-shaped model as a plain folder: config, fp32 safetensors, tokenizer.

Written out here, and not left to the loader of transformers, for three reasons. That loader drops the rule
that splits digits, so that two spaces before a number are encoded otherwise than in training. It takes a
minute and a further package. And its result depends on its version, whereas these few steps are defined by
the file format (gguf's own dequantization, in fp32), so that one file gives the same weights everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.core.errors import InputError, missing_package

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from gguf import GGUFReader

_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL = 3  # token type of GGUF for special tokens


def convert_gguf(source: Path, folder: Path, progress: Callable[[str], None] = lambda _: None) -> None:
    """Writes config.json, generation_config.json, model.safetensors and the tokenizer's files.

    Args:
        source: a GGUF file of architecture "llama" with a byte-level BPE tokenizer of type "smollm".
        folder: exists, and is written into.
        progress: receives a phrase per stage.

    Raises:
        InputError: another architecture, tokenizer or tensor name.
        MissingError: the packages gguf or safetensors are not installed.
    """
    try:
        from gguf import GGUFReader
        from safetensors.numpy import save_file
    except ImportError as error:
        raise missing_package(error.name or "gguf", "hf", "Converting a GGUF model") from error
    progress("reading the GGUF file")
    reader = GGUFReader(str(source))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    _check(fields, source)
    config = _config(fields)
    progress("dequantizing the weights")
    tensors = _tensors(reader, config)
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    progress("writing the model")
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    _write(folder / "config.json", config)
    special = {name: config[f"{name}_token_id"] for name in ("bos", "eos", "pad")}
    _write(folder / "generation_config.json", {f"{name}_token_id": i for name, i in special.items()})
    _write_tokenizer(folder, fields, special)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors makes files for their owner alone; a cache may be shared


def _check(fields: Mapping[str, Any], source: Path) -> None:
    found = tuple(
        fields.get(k) for k in ("general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre")
    )
    if found != ("llama", "gpt2", "smollm"):
        raise InputError(
            f"{source.name} has architecture, tokenizer and pre-tokenizer {found}; only ('llama', 'gpt2', 'smollm') "
            "can be converted. Use a safetensors copy of the model."
        )


def _config(fields: Mapping[str, Any]) -> dict[str, Any]:
    width, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": width // heads,
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": _shortest(fields["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _shortest(fields["llama.rope.freq_base"]),
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "float32",
    }


def _shortest(value: float) -> float:
    """The shortest decimal that is the same float32: 1e-05, which the file can only hold as 9.99999975e-06."""
    import numpy as np

    return float(str(np.float32(value)))


def _tensors(reader: GGUFReader, config: Mapping[str, Any]) -> dict[str, npt.NDArray[np.float32]]:
    import numpy as np
    from gguf.quants import dequantize

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors: dict[str, npt.NDArray[np.float32]] = {}
    for tensor in reader.tensors:
        weights = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
        if tensor.name in _OUTSIDE:
            name = _OUTSIDE[tensor.name]
        elif block and block[2] in _INSIDE:
            name = f"model.layers.{block[1]}.{_INSIDE[block[2]]}.weight"
            if block[2] in heads:
                # llama.cpp turns neighbouring pairs, transformers turns the two halves of a head
                pairs = weights.reshape(heads[block[2]], -1, 2, weights.shape[1])
                weights = pairs.swapaxes(1, 2).reshape(weights.shape)
        else:
            raise InputError(
                f"The GGUF file has a tensor {tensor.name!r}, which a plain Llama does not have."
            )
        tensors[name] = np.ascontiguousarray(weights)
    return tensors


def _write_tokenizer(folder: Path, fields: Mapping[str, Any], special: Mapping[str, int]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    # "smollm" in llama.cpp, and in the model's own tokenizer.json: every digit alone, then GPT-2's pattern
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    control = [t for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {f"{name}_token": tokens[i] for name, i in special.items()}
    settings |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        "chat_template": fields["tokenizer.chat_template"],
    }
    _write(folder / "tokenizer_config.json", settings)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", "utf-8")

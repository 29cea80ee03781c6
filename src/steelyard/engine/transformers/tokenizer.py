"""A checkpoint's tokenizer, behind the protocol of `steelyard.engine.tokens`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.core.errors import InputError, RefusedError, missing_package
from steelyard.engine.tokens import Encoded
from steelyard.engine.transformers.facts import remembered

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""What a tokenizer may be made of; those that exist make up its digest."""


class LocalTokenizer:
    """Text to token ids and back, and the chat template.

    Special tokens that stand in a text as text ("<|im_end|>") are read as such, as everywhere in the field:
    chat prompts are made that way.

    Args:
        folder: of the checkpoint.
        cache: where what the library makes of it is remembered; None asks the library each time.

    Raises:
        MissingError: transformers is not installed.
        InputError: there is no tokenizer, or it needs code from the model's author.
    """

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self._folder = folder
        facts = remembered("tokenizer", folder, cache, self._read)
        self._fast: Any = None
        if facts["fast"] is not None:
            from tokenizers import Tokenizer

            self._fast = Tokenizer.from_str(facts["fast"])
        self.bos_id: int | None = facts["bos_id"]
        self.eos_id: int | None = facts["eos_id"]
        self.adds_bos: bool = facts["adds_bos"]
        self.has_chat: bool = facts["has_chat"]
        # stop strings that are special tokens are found as ids, their text being skipped
        self.special_ids: Mapping[str, int] = facts["special_ids"]

    @cached_property
    def _slow(self) -> Any:  # noqa: ANN401 - a class of an untyped library
        """The library's own tokenizer, which takes seconds to import."""
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise missing_package("transformers", "hf", "A local model") from error
        try:
            # False, not the default: the default asks on the terminal whether to run the author's code
            return AutoTokenizer.from_pretrained(
                str(self._folder), trust_remote_code=False, local_files_only=True
            )
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise InputError(f"The tokenizer in {self._folder} cannot be read: {error}") from error

    def _read(self) -> dict[str, Any]:
        slow = self._slow
        backend = getattr(slow, "backend_tokenizer", None)
        probe = list(slow("a")["input_ids"])
        named = dict(zip(slow.all_special_tokens, slow.all_special_ids, strict=True))
        return {
            "fast": None if backend is None else _without_post_processor(backend),
            "bos_id": slow.bos_token_id,
            "eos_id": slow.eos_token_id,
            "adds_bos": slow.bos_token_id is not None and probe[:1] == [slow.bos_token_id],
            "has_chat": bool(slow.chat_template),
            "special_ids": named | {t.content: i for i, t in slow.added_tokens_decoder.items() if t.special},
        }

    def encode(self, text: str) -> Encoded:
        """Ids of the text alone, with character spans where the tokenizer is a fast one."""
        if self._fast is None:
            return Encoded(tuple(self._slow.encode(text, add_special_tokens=False)))
        found = self._fast.encode(text, add_special_tokens=False)
        return Encoded(tuple(found.ids), tuple(found.offsets))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens, special ones left out, and no space "cleaned up": these are the model's words."""
        if self._fast is not None:
            text: str = self._fast.decode(list(ids), skip_special_tokens=True)
            return text
        return str(self._slow.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def chat(self, text: str, system: str | None) -> str:
        """One user message (and a system message) in the chat template, up to where the answer begins.

        Raises:
            RefusedError: no template, or the template does not take these messages.
        """
        if not self.has_chat:
            raise RefusedError(
                "This model has no chat template (base models have none). Ask it without the chat option."
            )
        messages = [{"role": "user", "content": text}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        from jinja2 import TemplateError

        try:
            # the library renders it in a sandbox; it is the author's program
            prompt = str(self._slow.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except (TemplateError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise RefusedError(
                f"The model's chat template refuses these messages: {error}"
                + (". Try it without a system message." if system is not None else "")
            ) from error
        for role, content in (("system", system), ("user", text)):
            if content is not None and content.strip() not in prompt:
                raise RefusedError(
                    f"The model's chat template leaves out or changes the {role} message, so the model would not see "
                    f"what was asked (message begins {content.strip()[:40]!r})."
                )
        return prompt


def digest_paths(folder: Path) -> list[Path]:
    """The tokenizer's files in a folder."""
    return [path for name in FILES if (path := folder / name).is_file()]


def _without_post_processor(backend: Tokenizer) -> str:
    r"""The JSON of a copy that encodes plainly, with truncation and padding off.

    Post-processors add special tokens, which `tokens` decides on, and the byte-level one *trims white space
    from the spans*: a token such as ".\n\n" would claim to end before its line breaks, and the boundary
    after it would be put a token too late.
    """
    body = json.loads(backend.to_str())
    body["post_processor"] = None
    body["truncation"] = body["padding"] = None
    return json.dumps(body)

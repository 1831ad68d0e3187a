# SPDX-License-Identifier: Apache-2.0
"""Where what is tested lies: a build folder of this tree, or the bundle that this file is in."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def about_build():
    """Which Gantry: what the bundle says of itself, or what git says of the tree."""
    if (ROOT / "bundle.json").exists():
        return json.loads((ROOT / "bundle.json").read_text(encoding="utf-8"))
    told = subprocess.run(["git", "-C", str(ROOT), "show", "-s", "--format=%h %cI", "HEAD"], capture_output=True,
                          text=True, check=False).stdout.split()
    return {"commit": told[0] if told else "unknown", "date": told[1] if told else "unknown"}


def build_folder():
    named = os.environ.get("GANTRY_BUILD") or os.environ.get("GANTRY_BUILD_DIR")
    if named:
        return pathlib.Path(named).resolve()
    return ROOT if (ROOT / "bundle.json").exists() else ROOT / "build"


def can_be_entered(path):
    """By every user: workers give up root, and have to read kernel modules."""
    return all(folder.stat().st_mode & 0o001 for folder in [path, *path.parents])


def readable_build(build):
    """The build folder and None, or a copy where every user gets at it and what to remove() afterwards (of a bundle
    only: a build tree is large)."""
    if os.geteuid() != 0 or can_be_entered(build) or not (build / "bundle.json").exists():
        return build, None
    copy = tempfile.mkdtemp(prefix="gantry-bundle-")
    os.chmod(copy, 0o755)
    shutil.copytree(build, os.path.join(copy, "bundle"), symlinks=True)
    return pathlib.Path(copy) / "bundle", copy


def remove(copy):
    shutil.rmtree(copy, ignore_errors=True)

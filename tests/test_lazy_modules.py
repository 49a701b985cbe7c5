"""The remedy for an optional dependency that is missing works for how bitlake was installed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from bitlake import lazy_modules
from bitlake.lazy_modules import install_command


def test_a_checkout_is_installed_from_its_folder() -> None:
    pip, install, flag, target = shlex.split(install_command("spark"))
    assert (pip, install, flag) == ("pip", "install", "-e")
    folder, bracket, extra = target.partition("[")
    assert (bracket, extra) == ("[", "spark]") and 'name = "bitlake"' in Path(folder, "pyproject.toml").read_text()


def test_a_package_is_installed_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_modules, "__file__", str(tmp_path / "site-packages" / "bitlake" / "lazy_modules.py"))
    assert install_command("spark") == "pip install 'bitlake[spark]'"

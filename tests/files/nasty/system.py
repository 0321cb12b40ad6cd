"""Paths, links, folders and patterns that lead elsewhere, nowhere or round in circles."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from files.nasty.case import Group

group = Group("system", "in.txt")
gives, refuses = group.gives, group.refuses


def _nothing(folder: Path) -> None:
    """No file at all."""


def _link_to_itself(folder: Path) -> None:
    (folder / "loop.txt").symlink_to("loop.txt")


def _dangling(folder: Path) -> None:
    (folder / "gone.txt").symlink_to("nowhere.txt")


def _folder_in_itself(folder: Path) -> str:
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("a\n")
    (folder / "texts" / "again").symlink_to("../texts")
    return str(folder / "texts")


def _links_in_folder(folder: Path) -> str:
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("a\n")
    (folder / "texts" / "b.txt").symlink_to("a.txt")
    (folder / "texts" / "c.txt").symlink_to("c.txt")
    return str(folder / "texts")


def _pipe_in_folder(folder: Path) -> str:
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("a\n")
    os.mkfifo(folder / "texts" / "b.txt")
    return str(folder / "texts")


def _empty_file_in_folder(folder: Path) -> str:
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("a\n")
    (folder / "texts" / "b.jsonl").touch()
    return str(folder / "texts")


def _folder_of_pictures(folder: Path) -> str:
    (folder / "texts").mkdir()
    (folder / "texts" / "a.png").write_bytes(b"\x89PNG\r\n")
    return str(folder / "texts")


def _empty_folder(folder: Path) -> str:
    (folder / "texts").mkdir()
    return str(folder / "texts")


def _folder_named_as_file(folder: Path) -> str:
    (folder / "in.csv").mkdir()
    return str(folder / "in.csv")


def _file_in_file(folder: Path) -> str:
    (folder / "a.txt").write_text("a\n")
    return str(folder / "a.txt" / "b.txt")


def _socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # the path of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("in.txt")
    finally:
        os.chdir(here)


def _twice(folder: Path) -> list[str]:
    (folder / "a.txt").write_text("a\n")
    return [str(folder / "a.txt"), str(folder / "a.txt")]


def _bad_second(folder: Path) -> list[str]:
    (folder / "a.txt").write_text("a\n")
    (folder / "b.jsonl").write_text('{"text": "b"}\n{"text": 1}\n')
    return [str(folder / "a.txt"), str(folder / "b.jsonl")]


def _odd_name(folder: Path) -> str:
    (folder / "a [draft]* ?.txt").write_text("a\n")
    return str(folder / "a [draft]* ?.txt")


def _no_match(folder: Path) -> str:
    return str(folder / "*.txt")


def _nul_in_name(folder: Path) -> str:
    return str(folder / "a\0b.txt")


CASES = [
    refuses("no file", _nothing, "There is no file"),
    refuses("a link to itself", _link_to_itself, "symbolic links", file="loop.txt"),
    refuses("a link to nowhere", _dangling, "There is no file", file="gone.txt"),
    gives("a folder in itself", _folder_in_itself, ["a"], file="texts"),
    gives("links in a folder", _links_in_folder, ["a"], file="", warned="b.txt (the same file"),
    gives("a pipe in a folder", _pipe_in_folder, ["a"], file="", warned="b.txt (no file but a pipe"),
    gives("an empty file in a folder", _empty_file_in_folder, ["a"], file="", warned="b.jsonl (empty)"),
    refuses("a folder of pictures", _folder_of_pictures, "no file in it whose ending", file="texts"),
    refuses("an empty folder", _empty_folder, "nothing to read", file="texts"),
    refuses("a folder called .csv", _folder_named_as_file, "no file in it", file="in.csv"),
    refuses("a file in a file", _file_in_file, "Not a directory", file="b.txt"),
    refuses("a socket", _socket, "cannot be opened"),
    gives("the same file twice", _twice, ["a"], file="", warned="the same file"),
    refuses("a bad second file", _bad_second, "a number", "line 2", file="b.jsonl"),
    gives("a name full of patterns", _odd_name, ["a"], file=""),
    refuses("a pattern without match", _no_match, "No file matches", file="*.txt"),
    refuses("a NUL in the name", _nul_in_name, "null", file="b.txt"),
]

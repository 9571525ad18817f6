"""Objects under one fsspec URL: whole reads, whole writes, fresh listings. No torch."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from hypic_agents.errors import InvalidInput

# What their services store of an object is all of it or nothing. Elsewhere a file is renamed once it is whole.
_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"})


class Bucket:
    """Named objects in one place.

    Args:
        fs: An fsspec filesystem.
        root: Path in it, without the protocol.

    Every method raises whatever the filesystem raises.
    """

    def __init__(self, fs: Any, root: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        self._puts_whole = protocol in _WHOLE

    def get(self, name: str) -> bytearray | None:
        """An object's bytes; None if there is none."""
        try:
            return bytearray(self._fs.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def get_all(self, names: list[str]) -> dict[str, bytes]:
        """Several objects of one folder, at once where the filesystem can; any that vanish meanwhile are left out."""
        last = {name.rpartition("/")[2]: name for name in names}  # filesystems write paths in ways of their own
        found = self._fs.cat([self._path(name) for name in names], on_error="return") if names else {}
        for raw in found.values():
            if isinstance(raw, BaseException) and not isinstance(raw, FileNotFoundError):
                raise raw
        return {last[path.rpartition("/")[2]]: raw for path, raw in found.items() if not isinstance(raw, BaseException)}

    def put(self, name: str, data: bytes) -> None:
        """Write an object, replacing one of that name."""
        path = self._path(name)
        if self._puts_whole:
            self._fs.pipe_file(path, data)
            return
        draft = f"{path}.{uuid4().hex}.draft"
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            self._fs.pipe_file(draft, data)
            self._fs.mv(draft, path)
        except BaseException:
            if self._fs.exists(draft):
                self._fs.rm_file(draft)
            raise

    def has(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def names(self, folder: str) -> list[str]:
        """Names of the objects right in ``folder``, as they are now."""
        path = self._path(folder)
        self._fs.invalidate_cache(path)
        try:
            found = self._fs.ls(path, detail=False)
        except FileNotFoundError:
            return []
        return [f"{folder}/{each.rpartition('/')[2]}" for each in found if not each.endswith(("/", ".draft"))]

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def open_bucket(url: str) -> Bucket:
    """The place at ``url``; nothing is asked of it yet.

    Raises:
        InvalidInput: no URL of a known protocol, or a package is missing that it needs.
    """
    protocol = check_url(url)
    try:
        import fsspec
    except ImportError as error:
        raise InvalidInput(
            f"store_url={url!r} needs the package fsspec: pip install 'hypic-agents[remote]', or leave store_url out"
        ) from error
    try:
        fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise InvalidInput(f"store_url={url!r}: the protocol {protocol!r} needs another package: {error}") from error
    except ValueError as error:
        raise InvalidInput(f"store_url={url!r} cannot be used: {error}") from error
    return Bucket(fs, root)


def check_url(url: str) -> str:
    """The protocol of a URL.

    Raises:
        InvalidInput: it names no protocol, or nothing behind it.
    """
    protocol, found, path = url.partition("://")
    if not protocol or not found or not path.strip("/"):
        raise InvalidInput(f"store_url={url!r}: use a URL such as s3://bucket/folder or file:///mnt/segments")
    return protocol

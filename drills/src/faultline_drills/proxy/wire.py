"""The parts of PostgreSQL's wire protocol 3 that a proxy must parse. No I/O.

The client's stream is split into *messages*: a simple query, or everything up to a Sync (or Flush), which
a driver sends at once for one statement. Their numbers, unlike those of packets or protocol frames, are the
same for the same work. The server's stream is split after each complete reply.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

PROTOCOL_3 = 3
SSL_REQUEST = 80877103
GSSENC_REQUEST = 80877104
CANCEL_REQUEST = 80877102
MAX_STARTUP_BYTES = 10_000  # the limit of PostgreSQL itself
TEXT_LENGTH = 60

_HEADER = struct.Struct("!ci")
_INT = struct.Struct("!i")
# Authentication requests that the client must answer: passwords, and steps of SASL.
_AUTHENTICATION_TURNS = frozenset((2, 3, 5, 7, 8, 9, 10, 11))


class MessageKind(StrEnum):
    STARTUP = "startup"
    CANCEL = "cancel"
    PASSWORD = "password"  # noqa: S105 - any reply to an authentication request
    QUERY = "query"  # one simple query
    STATEMENT = "statement"  # Parse, Bind, Execute, … up to Sync
    FLUSH = "flush"  # the same up to Flush, in a pipeline
    COPY_END = "copy end"  # the rows of a COPY are not messages
    CALL = "call"
    TERMINATE = "terminate"


_ENDS = {
    b"p": MessageKind.PASSWORD,
    b"Q": MessageKind.QUERY,
    b"S": MessageKind.STATEMENT,
    b"H": MessageKind.FLUSH,
    b"c": MessageKind.COPY_END,
    b"f": MessageKind.COPY_END,
    b"F": MessageKind.CALL,
    b"X": MessageKind.TERMINATE,
}


@dataclass(frozen=True, slots=True)
class ClientPart:
    """A part of the client's stream; without a kind it is not a message (COPY rows)."""

    data: bytes
    kind: MessageKind | None = None
    sql: str = ""
    is_answered: bool = False  # the server sends a complete reply


@dataclass(frozen=True, slots=True)
class Message:
    """One numbered message of a client."""

    number: int  # of all messages through the proxy
    connection: int
    nth: int  # on its connection
    kind: MessageKind
    sql: str
    application: str
    at: float  # seconds since the proxy was started

    @property
    def text(self) -> str:
        """Its SQL in one line, truncated."""
        return " ".join(self.sql.split())[:TEXT_LENGTH]

    def __str__(self) -> str:
        who = f"{self.connection}.{self.nth}"
        return f"{self.number:4} {who:>6} {self.application:20} {self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Startup:
    """The startup packet of a connection."""

    code: int
    parameters: dict[str, str] = field(default_factory=dict)


def read_startup(body: bytes) -> Startup:
    (code,) = _INT.unpack_from(body)
    if code >> 16 != PROTOCOL_3:
        return Startup(code)
    words = [word.decode("utf-8", "replace") for word in body[4:].split(b"\0")]
    return Startup(code, dict(zip(words[0::2], words[1::2], strict=False)))


class ClientStream:
    """Splits the client's stream, after its startup packet, into parts."""

    def __init__(self) -> None:
        self._unread = bytearray()
        self._gathered: list[bytes] = []
        self._sql: list[str] = []
        self._prepared: dict[bytes, str] = {}
        self._last_was_simple = False

    def feed(self, data: bytes) -> list[ClientPart]:
        self._unread += data
        start = 0
        parts: list[ClientPart] = []
        while len(self._unread) - start >= _HEADER.size:
            code, length = _HEADER.unpack_from(self._unread, start)
            end = start + 1 + length
            if len(self._unread) < end:
                break
            frame = bytes(self._unread[start:end])
            start = end
            if code == b"d":
                parts.append(ClientPart(frame))
                continue
            self._gathered.append(frame)
            self._note(code, frame[_HEADER.size :])
            if code in _ENDS:
                parts.append(self._part(_ENDS[code]))
        del self._unread[:start]
        return parts

    @property
    def rest(self) -> bytes:
        """The unfinished message at the end of the stream."""
        return b"".join(self._gathered) + self._unread

    def _note(self, code: bytes, body: bytes) -> None:
        """Remember the SQL of a query, a prepared statement, or one that is bound again."""
        match code:
            case b"Q":
                self._sql.append(_text(body.partition(b"\0")[0]))
            case b"P":
                name, _, rest = body.partition(b"\0")
                self._prepared[name] = _text(rest.partition(b"\0")[0])
                self._sql.append(self._prepared[name])
            case b"B":
                name = body.split(b"\0", 2)[1]
                if (sql := self._prepared.get(name, "")) not in self._sql[-1:]:
                    self._sql.append(sql)

    def _part(self, kind: MessageKind) -> ClientPart:
        data, sql = b"".join(self._gathered), "; ".join(self._sql)
        self._gathered.clear()
        self._sql.clear()
        match kind:
            case (
                MessageKind.QUERY | MessageKind.STATEMENT | MessageKind.CALL | MessageKind.PASSWORD
            ):
                self._last_was_simple = kind is MessageKind.QUERY
                is_answered = True
            case MessageKind.COPY_END:  # in the extended protocol the Sync that follows is answered
                is_answered = self._last_was_simple
            case _:
                is_answered = False
        return ClientPart(data, kind, sql, is_answered)


@dataclass(frozen=True, slots=True)
class ServerReply:
    """A part of the server's stream."""

    data: bytes
    is_complete: bool = False  # the reply is complete
    transaction_status: str | None = None  # I, T or E, if included
    backend_pid: int | None = None


class ServerStream:
    """Splits the server's stream after each complete reply; rows are not buffered."""

    def __init__(self) -> None:
        self._head = b""  # of an incomplete frame; with the body if it is parsed
        self._skip = 0

    def feed(self, data: bytes) -> Iterator[ServerReply]:
        start = position = 0
        while position < len(data):
            if self._skip:
                step = min(self._skip, len(data) - position)
                self._skip -= step
                position += step
                continue
            wanted = self._wanted() - len(self._head)
            self._head += data[position : position + wanted]
            position = min(position + wanted, len(data))
            if len(self._head) < self._wanted():
                continue
            if reply := self._read(data[start:position]):
                yield reply
                start = position
            _, length = _HEADER.unpack_from(self._head)
            self._skip = 1 + length - len(self._head)
            self._head = b""
        if start < len(data):
            yield ServerReply(data[start:])

    def _wanted(self) -> int:
        """The bytes of the frame that must be read: usually only the header."""
        if len(self._head) < _HEADER.size:
            return _HEADER.size
        code, length = _HEADER.unpack_from(self._head)
        return 1 + length if code in (b"Z", b"K", b"G", b"R") else _HEADER.size

    def _read(self, data: bytes) -> ServerReply | None:
        body = self._head[_HEADER.size :]
        match self._head[:1]:
            case b"Z":
                return ServerReply(data, is_complete=True, transaction_status=body.decode("ascii"))
            case b"K":
                return ServerReply(data, backend_pid=_INT.unpack_from(body)[0])
            case b"G":  # ready for the rows of a COPY
                return ServerReply(data, is_complete=True)
            case b"R" if _INT.unpack_from(body)[0] in _AUTHENTICATION_TURNS:
                return ServerReply(data, is_complete=True)
        return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")

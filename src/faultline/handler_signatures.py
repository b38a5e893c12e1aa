"""Checks the signature of a handler, and names the argument that does not fit it."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from faultline.arguments.annotations import Unresolved, resolve
from faultline.errors import InvalidInput
from faultline.job import Job
from faultline.suggestions import did_you_mean

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def signature_of(handler: Callable[..., Any]) -> inspect.Signature:
    """The signature of a handler; InvalidInput if it cannot be a task's."""
    signature = inspect.signature(handler)
    parameters = list(signature.parameters.values())
    name = getattr(handler, "__qualname__", repr(handler))
    if not parameters or parameters[0].kind not in _POSITIONAL:
        raise InvalidInput(f"{name} must take the job as its first argument: def {name}(job, …)")
    if _cannot_be_a_job(parameters[0].annotation, inspect.unwrap(handler)):
        first = re.sub("[\"']", "", str(parameters[0]))  # quoted if annotations are not evaluated
        more = ", …" if len(parameters) > 1 else ""
        raise InvalidInput(
            f"{name} must take the job as its first argument, not {first}",
            hint=f"def {name.rpartition('.')[2]}(job: faultline.Job, {first}{more})",
        )
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidInput(f"{name}: argument {parameter} cannot be passed by name")
    return signature


def batch_signature(
    handler: Callable[..., Any], arguments: Callable[..., Any] | None
) -> inspect.Signature:
    """The arguments of a batch handler's jobs, after the batch itself."""
    name = getattr(handler, "__qualname__", repr(handler))
    taken = list(inspect.signature(handler).parameters.values())
    if len(taken) != 1 or taken[0].kind not in _POSITIONAL:
        raise InvalidInput(
            f"{name} must take the batch as its only argument: def {name.rpartition('.')[2]}(batch)",
            hint="the arguments of each job are job.args; name their class with arguments=",
        )
    batch = inspect.Parameter("batch", inspect.Parameter.POSITIONAL_ONLY)
    if arguments is None:
        anything = inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)
        return inspect.Signature([batch, anything])
    try:
        parameters = list(inspect.signature(arguments).parameters.values())
    except (TypeError, ValueError):
        parameters = None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if parameters is None or any(each.kind not in by_name for each in parameters):
        raise InvalidInput(
            f"{name}: arguments={getattr(arguments, '__name__', arguments)} cannot be called with"
            " arguments by name",
            hint="use a dataclass with a field for each argument",
        )
    return inspect.Signature([batch, *parameters])


def annotated_function(arguments: Callable[..., Any]) -> Callable[..., Any]:
    """The function in whose module the annotations of these arguments are names."""
    constructor = getattr(arguments, "__init__", None)
    if isinstance(arguments, type) and inspect.isfunction(constructor):
        return constructor
    return arguments


def _cannot_be_a_job(annotation: Any, function: Any) -> bool:
    """Whether the annotation names a class that no job is an instance of.

    Without an annotation, with a protocol or with a name that is known to type checkers only, it may be
    one. The class of the application's own tests may be a subclass of Job.
    """
    if annotation is inspect.Parameter.empty:
        return False
    try:
        found = resolve(annotation, getattr(function, "__globals__", {}), {})
    except (Unresolved, SyntaxError):
        return False
    return _is_another_class(found)


def _is_another_class(annotation: Any) -> bool:
    if annotation is Any:  # a class too
        return False
    kind = typing.get_origin(annotation) or annotation
    if kind in (typing.Union, types.UnionType):
        return all(map(_is_another_class, typing.get_args(annotation)))
    if kind is typing.Annotated:
        return _is_another_class(typing.get_args(annotation)[0])
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return False
    try:
        return not (issubclass(kind, Job) or issubclass(Job, kind))
    except TypeError:  # a metaclass that does not answer
        return False


def misfit(
    signature: inspect.Signature, given: Iterable[str], error: TypeError
) -> tuple[str, str | None]:
    """What is wrong with arguments that do not bind, and a hint.

    A mistyped name is both unexpected and missing; the name that was typed comes first.
    """
    parameters = list(signature.parameters.values())[1:]  # the first is the job
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return str(error), None
    known = [parameter.name for parameter in parameters]
    unexpected = [str(name) for name in given if name not in known]  # a dict may have other keys
    if not unexpected:
        return str(error), None
    takes = f"it takes {', '.join(known)}" if known else "it takes no arguments"
    return f"it has no argument {unexpected[0][:80]!r}", did_you_mean(unexpected[0], known) or takes

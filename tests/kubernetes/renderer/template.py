"""Runs a parsed template: the tree from syntax.py, over the values it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.kubernetes.renderer.functions import FUNCTIONS, RenderingFailed, is_empty, printed
from tests.kubernetes.renderer.pipeline import Call, Constant, Operand, Path, Pipeline
from tests.kubernetes.renderer.syntax import (
    Branch,
    Definition,
    Loop,
    Node,
    Print,
    Text,
    Unsupported,
)

__all__ = ["RenderingFailed", "Templates"]


class _Scope:
    """The variables of a block, on top of those of the block around it."""

    def __init__(self, around: _Scope | None = None, **variables: Any) -> None:
        self._around, self._variables = around, variables

    def find(self, name: str) -> Any:
        if name in self._variables:
            return self._variables[name]
        if self._around is None:
            raise RenderingFailed(f"${name} is not declared")
        return self._around.find(name)

    def declare(self, name: str, value: Any) -> None:
        self._variables[name] = value

    def assign(self, name: str, value: Any) -> None:
        if name in self._variables:
            self._variables[name] = value
        elif self._around is None:
            raise RenderingFailed(f"${name} is not declared")
        else:
            self._around.assign(name, value)


class Templates:
    """The named templates of a chart, and what renders them."""

    def __init__(self) -> None:
        self._named: dict[str, Sequence[Node]] = {}

    def define_all(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Definition):
                self._named[node.name] = node.body

    def render(self, nodes: Sequence[Node], dot: Any) -> str:
        return self._run(nodes, dot, _Scope(**{"": dot}))

    def _include(self, name: str, dot: Any) -> str:
        if name not in self._named:
            raise RenderingFailed(f"no template is named {name!r}")
        return self.render(self._named[name], dot)

    def _run(self, nodes: Sequence[Node], dot: Any, scope: _Scope) -> str:
        parts = []
        for node in nodes:
            if isinstance(node, Text):
                parts.append(node.text)
            elif isinstance(node, Print):
                value = self._evaluate(node.pipeline, dot, scope)
                if node.pipeline.target is None:
                    parts.append(printed(value))
            elif isinstance(node, Branch):
                holds = not is_empty(self._evaluate(node.condition, dot, scope))
                parts.append(self._run(node.body if holds else node.otherwise, dot, _Scope(scope)))
            elif isinstance(node, Loop):
                parts.append(self._loop(node, dot, scope))
        return "".join(parts)

    def _loop(self, loop: Loop, dot: Any, scope: _Scope) -> str:
        over = self._evaluate(loop.over, dot, scope)
        if isinstance(over, Mapping):
            items: list[tuple[Any, Any]] = sorted(over.items())
        elif isinstance(over, list):
            items = list(enumerate(over))
        else:
            raise RenderingFailed(f"range over {over!r}")
        parts = []
        for key, value in items:
            inner = _Scope(scope)
            if loop.key is not None:
                inner.declare(loop.key, key)
            if loop.value is not None:
                inner.declare(loop.value, value)
            parts.append(self._run(loop.body, value, inner))
        return "".join(parts)

    # ── expressions ──────────────────────────────────────────────────────────────────────────────

    def _evaluate(self, pipeline: Pipeline, dot: Any, scope: _Scope) -> Any:
        value = self._value(pipeline.stages[0], dot, scope)
        for stage in pipeline.stages[1:]:
            assert isinstance(stage, Call)
            value = self._call(stage, dot, scope, value)
        if pipeline.target is not None:
            keep = scope.declare if pipeline.declares else scope.assign
            keep(pipeline.target, value)
        return value

    def _value(self, operand: Operand, dot: Any, scope: _Scope) -> Any:
        if isinstance(operand, Constant):
            return operand.value
        if isinstance(operand, Path):
            return self._at(operand, dot, scope)
        return self._call(operand, dot, scope)

    def _at(self, path: Path, dot: Any, scope: _Scope) -> Any:
        value = dot if not path.root else scope.find(path.root[1:])
        for name in path.fields:
            if not isinstance(value, Mapping):
                raise RenderingFailed(f".{name} of {value!r}, in {'.'.join(path.fields)}")
            value = value.get(name)
        return value

    def _call(self, call: Call, dot: Any, scope: _Scope, *piped: Any) -> Any:
        if call.function in ("and", "or"):
            return self._short_circuit(call, dot, scope, *piped)
        arguments = [self._value(one, dot, scope) for one in call.arguments]
        arguments.extend(piped)
        if isinstance(call.function, Path):
            method = self._at(call.function, dot, scope)
            if not callable(method):
                raise RenderingFailed(f"{call.function} takes no arguments")
            return method(*arguments)
        if call.function == "include":
            return self._include(*arguments)
        if call.function not in FUNCTIONS:
            raise Unsupported(f"the function {call.function}")
        try:
            return FUNCTIONS[call.function](*arguments)
        except (TypeError, AttributeError, ValueError) as error:
            raise RenderingFailed(f"{call.function} {arguments!r}: {error}") from error

    def _short_circuit(self, call: Call, dot: Any, scope: _Scope, *piped: Any) -> Any:
        if piped or not call.arguments:
            raise Unsupported(f"{call.function} in a pipeline")
        value = None
        for argument in call.arguments:
            value = self._value(argument, dot, scope)
            if is_empty(value) == (call.function == "and"):
                break
        return value

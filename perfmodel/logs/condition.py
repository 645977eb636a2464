"""Conditions on rows, such as ``n_nodes <= 4 and system == 'lab'``.

Only comparisons, ``and``, ``or``, ``not`` and ``in`` are understood; nothing is run as Python.
Where a table lacks a column, a comparison with it is neither true nor false, as in SQL: of
``n_nodes <= 4 and batch_per_gpu == 32`` a table without ``batch_per_gpu`` still knows that a row
with six nodes is out.
"""

import ast
import operator

import numpy as np
import pandas as pd

from perfmodel.errors import ConfigurationError
from perfmodel.quantities import check_columns

_COMPARE = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Condition:
    """A condition on the columns of a table.

    Parameters
    ----------
    text : str
        For example ``"n_nodes > 4 or batch_per_gpu in [24, 48]"``.

    Raises
    ------
    ConfigurationError
        If the text is no such condition (also a `ValueError`).
    UnknownNameError
        If it names a column that no table can have (also a `KeyError`).
    """

    def __init__(self, text):
        self.text = text
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            raise self._error("it cannot be parsed") from None
        self.columns = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        check_columns(sorted(self.columns), where=f", in the condition {text!r}")
        if not self.columns:
            raise self._error("it names no column")
        self.holds(pd.DataFrame())

    def holds(self, table):
        """Rows of which the condition is certainly true: boolean array of shape (n_rows,)."""
        return self._evaluate(self._tree, table)[0]

    def fails(self, table):
        """Rows of which the condition is certainly false: boolean array of shape (n_rows,)."""
        return self._evaluate(self._tree, table)[1]

    def _error(self, problem):
        return ConfigurationError(
            f'condition {self.text!r}: {problem}; write for example "n_nodes <= 4 and '
            "workload == 'resnet50'\""
        )

    def _evaluate(self, node, table):
        """Two boolean arrays: where the node is true, and where it is false."""
        if isinstance(node, ast.BoolOp):
            parts = [self._evaluate(value, table) for value in node.values]  # noqa: PD011
            true, false = (np.array(side) for side in zip(*parts, strict=True))
            if isinstance(node.op, ast.And):
                return true.all(axis=0), false.any(axis=0)
            return true.any(axis=0), false.all(axis=0)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            true, false = self._evaluate(node.operand, table)
            return false, true
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            pairs = [
                self._compare(left, op, right, table)
                for left, op, right in zip(operands, node.ops, operands[1:], strict=False)
            ]
            true, false = (np.array(side) for side in zip(*pairs, strict=True))
            return true.all(axis=0), false.any(axis=0)
        raise self._error(f"{ast.unparse(node)!r} is no comparison")

    def _compare(self, left, op, right, table):
        a, b = self._value(left, table), self._value(right, table)
        if a is None or b is None:
            nowhere = np.zeros(len(table), dtype=bool)
            return nowhere, nowhere
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(a, pd.Series) or not isinstance(b, list):
                raise self._error("'in' wants a column, then a list")
            true = a.isin(b).to_numpy(dtype=bool) ^ isinstance(op, ast.NotIn)
        elif type(op) in _COMPARE:
            try:
                compared = _COMPARE[type(op)](a, b)
            except TypeError:
                raise self._error(
                    f"{ast.unparse(left)} and {ast.unparse(right)} differ in kind"
                ) from None
            if isinstance(compared, pd.Series):
                compared = compared.fillna(False).to_numpy(dtype=bool)
            true = np.broadcast_to(compared, len(table))
        else:
            raise self._error(f"'{ast.unparse(left)} … {ast.unparse(right)}' is not understood")
        return true, ~true

    def _value(self, node, table):
        if isinstance(node, ast.Name):
            return table.get(node.id)
        try:
            value = ast.literal_eval(node)
        except ValueError:
            raise self._error(f"{ast.unparse(node)!r} is neither a column nor a value") from None
        return list(value) if isinstance(value, list | tuple | set) else value

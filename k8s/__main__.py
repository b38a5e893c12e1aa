"""`make k8s`: write what k8s/ and its documentation repeat, rules of monitoring/ and the chart's values."""

from __future__ import annotations

from k8s import rules, values_table


def main() -> None:
    for path, text in {**rules.embedded(), values_table.DOCUMENT: values_table.document()}.items():
        path.write_text(text)


if __name__ == "__main__":
    main()

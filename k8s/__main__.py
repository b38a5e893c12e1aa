"""`make k8s`: writes the copies of the alert rules and the table of chart values."""

from __future__ import annotations

from k8s import rules, values_table


def main() -> None:
    for path, text in {**rules.embedded(), values_table.DOCUMENT: values_table.document()}.items():
        path.write_text(text)


if __name__ == "__main__":
    main()

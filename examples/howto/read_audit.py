"""Read the audit of a run: why decisions ended, and one of them in words.

python examples/howto/read_audit.py runs/night
"""

import sys
from pathlib import Path

import polars as pl

from sagefl.runs.rundir import RunDirectory


def main(folder: Path) -> None:
    """Three questions that the audit answers."""
    audit = RunDirectory(folder).table("decisions")
    print(f"{len(audit)} decisions of {audit['client'].n_unique()} clients in {audit['round'].n_unique()} rounds")

    print("\nWhy they ended, and what they asked:")
    reasons = audit.group_by("reason").agg(pl.len().alias("decisions"), pl.col("evaluations").mean()).sort("reason")
    for reason, count, asked in reasons.iter_rows():
        print(f"  {reason:<10} {count:>4}  {asked:6.1f} evaluations each")

    print("\nThe first certified one:" if (audit["reason"] == "certified").any() else "\nThe first one:")
    first = audit.filter(pl.col("reason") == "certified").head(1)
    row = (first if len(first) else audit.head(1)).row(0, named=True)
    print(
        f"  round {row['round'] + 1}, client {row['client']}, neighbours {row['peers']}, "  # tables count rounds from 0
        f"{row['anchors']} anchors looked at"
    )
    if row["risks"]:
        print(
            "  risks " + ", ".join(f"{peer}: {risk:.3f}" for peer, risk in zip(row["peers"], row["risks"], strict=True))
        )
    if row["advantage"] is not None and row["width"] is not None:
        print(f"  advantage {row['advantage']:.3f}, needed {row['width']:.3f}, pulled {row['chosen']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""One rank of a shared sum: `python rank_sum.py RANK WORLD PORT JOB OUT`. JOB: how many sums; `die`: rank 1 ends after the
first."""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from rlinf_cli.api import Ranks, RunError
from rlinf_torch.distributed import RankGroup


def parts(rank, number):
    """What a rank adds to sum `number`: float32 and float64, small and larger than what is shared."""
    noise = torch.Generator().manual_seed(1000 * number + rank)
    count = (3, 1000, 70_000, 1_100_000)[number % 4]
    kind = torch.float64 if number % 3 == 2 else torch.float32
    return [torch.randn(count, generator=noise, dtype=kind), torch.randn(2, 2, generator=noise, dtype=kind)]


def main():
    rank, world, port = (int(word) for word in sys.argv[1:4])
    job, out = sys.argv[4], Path(sys.argv[5])
    group = RankGroup(Ranks(rank, world, f"tcp://127.0.0.1:{port}"), torch.device("cpu"))
    told = {"shared": group._shared is not None, "equal": True}
    if job == "die":
        group.sum(parts(rank, 0))
        if rank:
            os._exit(0)
        time.sleep(0.2)
        try:
            group.sum(parts(rank, 0))
        except RunError as error:
            told["error"] = str(error)
    else:
        for number in range(int(job)):
            mine = parts(rank, number)
            if number % 7 == rank:
                time.sleep(0.003)
            if mine[0].dtype == torch.float64:
                group.sum(mine)
            else:
                rows = group.sum_and_tell(mine, [float(rank), 1 / 3, float("inf"), 2.0**40 + rank])
                told["rows"] = [row[:1] + row[3:] for row in rows]
                told["close"] = abs(rows[1][1] - 1 / 3)
                told["infinite"] = rows[0][2]
            wanted = [sum(both[1:], both[0].clone()) for both in zip(*[parts(other, number) for other in range(world)])]
            told["equal"] &= all(torch.equal(one, other) for one, other in zip(mine, wanted, strict=True))
    told["left"] = [name for name in os.listdir("/dev/shm") if name.startswith("rlinf-sum-")]
    (out / f"{rank}.json").write_text(json.dumps(told))
    if job != "die":
        dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()

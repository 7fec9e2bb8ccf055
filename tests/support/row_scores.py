"""Functions of a log row, by which the best policy is chosen: some give a number, others fail.

They are in a module that is imported, since a run file names a function by its import path.
"""


def near_three(row):
    return -abs(row["iteration"] - 3)


def calm(row):
    return row["value_mean"] - 2.0 * row["grad_norm"]


def halved(row):
    return row["eval_return"] / 2.0


def misspelt(row):
    return row["grad_norms"]


def unending(row):
    return row["episode_return"] - 1.0


def failing(row):
    return int(row["episode_return"])


def silent(row):
    row["grad_norm"]


def of_two(state, row):
    return row["grad_norm"]

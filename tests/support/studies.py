"""Studies of Optuna that tests read, without a connection to the database that stays open."""

import optuna
import sqlalchemy


def loaded_study(url, name="ppax"):
    """Return the study `name` in the database at `url`, as Optuna reads it."""
    storage = optuna.storages.RDBStorage(url, {"poolclass": sqlalchemy.pool.NullPool})
    return optuna.load_study(study_name=name, storage=storage)

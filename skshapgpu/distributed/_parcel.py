"""How an explainer travels to the workers of an engine: as bytes, opened once in each process."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from threading import Lock
from typing import Any

#: Parcels that a process keeps opened, the last ones used: an explainer's tables may take 256 MiB.
_N_KEPT = 4

_opened: OrderedDict[str, Any] = OrderedDict()
_lock = Lock()


class Parcel:
    """A pickled object, which a process unpickles when it is first asked for it.

    Schedulers, which look into the graphs that they get, and the stores between the processes only see the
    bytes: an explainer compiles its model as soon as it is unpickled.

    Parameters
    ----------
    contents : object
    dumps : callable
        The engine's own ``cloudpickle.dumps``, which keeps functions of a notebook, too.

    Attributes
    ----------
    payload : bytes
    digest : str
        Of the bytes; parcels of the same digest are opened once.
    """

    def __init__(self, contents: Any, dumps: Callable[[Any], bytes]) -> None:
        self.payload = dumps(contents)
        self.digest = sha256(self.payload).hexdigest()

    def open(self) -> Any:
        """The object; the same one for all who ask in this process, whichever thread they run in."""
        with _lock:
            if self.digest not in _opened:
                _opened[self.digest] = pickle.loads(self.payload)
            _opened.move_to_end(self.digest)
            while len(_opened) > _N_KEPT:
                _opened.popitem(last=False)
            return _opened[self.digest]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self.payload)

    def __dask_tokenize__(self) -> str:
        return self.digest

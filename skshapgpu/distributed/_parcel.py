"""Transport of an explainer to the workers of an engine: as a pickle that each process loads once."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from threading import Lock
from typing import Any

#: Number of recently used parcels that a process keeps open. More would take too much memory: the tables of
#: an explainer may take 256 MiB.
_N_OPEN = 4

_opened: OrderedDict[str, Any] = OrderedDict()
_lock = Lock()


class Parcel:
    """A pickled object, which a process unpickles when it is first needed.

    An explainer compiles its model as soon as it is unpickled. Schedulers, which inspect their graphs, and
    the stores between processes therefore see only bytes. ``dumps`` is the engine's own
    ``cloudpickle.dumps``, which can also pickle functions defined in a notebook. Parcels with the same
    ``digest`` are opened once.
    """

    def __init__(self, contents: Any, dumps: Callable[[Any], bytes]) -> None:
        self.payload = dumps(contents)
        self.digest = sha256(self.payload).hexdigest()

    def open(self) -> Any:
        """Return the object; all threads of a process get the same one."""
        with _lock:
            if self.digest not in _opened:
                _opened[self.digest] = pickle.loads(self.payload)
            _opened.move_to_end(self.digest)
            while len(_opened) > _N_OPEN:
                _opened.popitem(last=False)
            return _opened[self.digest]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self.payload)

    def __dask_tokenize__(self) -> str:
        return self.digest

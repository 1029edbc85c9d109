"""``python -m skshapgpu`` is the command ``skshapgpu``."""

import sys

from .command_line import main

sys.exit(main())

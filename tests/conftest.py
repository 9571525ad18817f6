"""One thread: the models here are tiny, and a second thread of torch costs more than it gives."""

from __future__ import annotations

import torch

torch.set_num_threads(1)

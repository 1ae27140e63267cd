# SPDX-License-Identifier: Apache-2.0
"""Makes transformers compute in true float64.

Upcasting a model's weights is not enough: its norms, rotary tables and softmaxes ask for float32 by
name. Under this mode every such request yields float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def _widen(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


class Float64Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args = tuple(_widen(a) for a in args)
        kwargs = {k: _widen(v) for k, v in (kwargs or {}).items()}
        return func(*args, **kwargs)


def upcast(model: Any) -> Any:
    """Upcasts weights and recomputes the rotary frequencies, otherwise rounded to float32."""
    model = model.double()
    with Float64Mode():
        model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    if model.model.rotary_emb.inv_freq.dtype != torch.float64:
        raise RuntimeError("the rotary frequencies are not float64")
    return model

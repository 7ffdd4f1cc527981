"""Runs a step under `make_fx`: forward, loss and gradients as one graph, with the phase of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.utils._pytree import tree_leaves

from planner.trace.fake.fake_model import FakeModel
from planner.trace.fake.fake_world import fake_world
from planner.trace.kernels.autocast import autocast_region, autocast_rules
from planner.trace.kernels.cpu_kernels import cpu_kernels
from planner.trace.kernels.cuda_kernels import cuda_kernels
from planner.trace.operators import registered_operators
from planner.trace.record.record_step import StepError
from planner.trace.record.recording import NodePhase
from runtime.load_model import loss_of


def joint_graph(
    model: FakeModel, device: Literal["cuda", "cpu"], autocast: Literal["bf16", "fp16"] | None
) -> tuple[fx.Graph, dict[str, NodePhase]]:
    """Returns the graph, whose outputs are the loss and the gradients, and the phase of each of its nodes by name.

    Raises:
        StepError: The model raised, or gave no loss.
    """
    parameters = list(model.module.parameters())
    inputs = [leaf for leaf in tree_leaves(model.batch) if isinstance(leaf, torch.Tensor)]
    phases: dict[str, NodePhase] = {}
    phase = "forward"

    def step(*given: list[torch.Tensor]) -> list[torch.Tensor | None]:  # noqa: ARG001 - the module holds them itself
        nonlocal phase
        proxies: Any = get_proxy_mode()
        with _noting_phases(proxies.tracer.graph, phases) as end_forward:
            with autocast_region(autocast):
                loss = loss_of(model.module(**model.batch))
            phase = "backward"
            end_forward()
            wanted = [parameter for parameter in parameters if parameter.requires_grad]
            return [loss, *torch.autograd.grad(loss, wanted, allow_unused=True)]

    kernels = cuda_kernels() if device == "cuda" else cpu_kernels()
    with registered_operators(device), fake_world(model.fake_mode, model.shadow), autocast_rules(device), kernels:
        try:
            traced = make_fx(step, tracing_mode="real", _error_on_data_dependent_ops=False)(parameters, inputs)
        except Exception as error:
            raise StepError("", phase, error) from error
    return traced.graph, phases


@contextmanager
def _noting_phases(graph: fx.Graph, phases: dict[str, NodePhase]) -> Iterator[Callable[[], None]]:
    """While on, the phase of the step is written down for each node that is made; yields what ends forward."""
    make = graph.create_node
    is_forward = True

    def end_forward() -> None:
        nonlocal is_forward
        is_forward = False

    def noted(*args: Any, **kwargs: Any) -> fx.Node:
        node = make(*args, **kwargs)
        if torch._C._current_graph_task_id() == -1:
            phases[node.name] = "forward" if is_forward else "backward"
        else:  # gradients enabled inside backward: a checkpoint runs its forward again
            phases[node.name] = "recomputation" if torch.is_grad_enabled() else "backward"
        return node

    with patch.object(graph, "create_node", noted):
        yield end_forward

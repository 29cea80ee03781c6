"""Whether a row's numbers depend on its company is measured on a model's own layers."""

from __future__ import annotations

import pytest

from steelyard.engine.transformers.steady import steady

torch = pytest.importorskip("torch")

SIZES = [8, 16, 24]


def exact(size: int = 12, kind: type = torch.nn.Linear) -> torch.nn.Module:
    """A layer that only moves numbers, so that no order of additions shows."""
    layer = kind(size, size)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(size).flip(0))
        layer.bias.zero_()
    return layer


class ByCount(torch.nn.Linear):
    """Other last bits for more rows."""

    def forward(self, rows):
        return super().forward(rows) * (1 + 2e-7 * (rows.shape[-2] > 8))


class ByPlace(torch.nn.Linear):
    """Other last bits for the last row."""

    def forward(self, rows):
        out = super().forward(rows)
        out[..., -1, :] *= 1 + 2e-7
        return out


def test_layers_that_treat_every_row_alike_are_steady():
    assert steady(torch.nn.Sequential(exact(12), exact(7)), SIZES)
    assert steady(torch.nn.Sequential(torch.nn.Tanh()), SIZES)
    assert steady(exact().to(torch.bfloat16), SIZES)


@pytest.mark.parametrize("fault", [ByCount, ByPlace])
def test_one_layer_that_does_not_is_found(fault):
    net = torch.nn.Sequential(exact(12), exact(7), torch.nn.Sequential(exact(5, fault)))
    assert not steady(net, SIZES)


def test_the_layers_of_gpt2_are_looked_at_too():
    from transformers.pytorch_utils import Conv1D

    class Shaky(Conv1D):
        def forward(self, rows):
            return super().forward(rows) * (1 + 2e-7 * (rows.shape[-2] > 8))

    assert steady(exact(6, Conv1D), SIZES)
    assert not steady(exact(6, Shaky), SIZES)


def test_layers_of_one_shape_are_tried_once_and_no_global_seed_is_touched():
    calls = []

    class Counted(torch.nn.Linear):
        def forward(self, rows):
            calls.append(rows.shape)
            return super().forward(rows)

    net = torch.nn.Sequential(*(exact(12, Counted) for _ in range(5)))
    before = torch.get_rng_state()
    assert steady(net, SIZES)
    assert torch.equal(before, torch.get_rng_state())
    assert len(calls) == 2 + len(SIZES)
    assert {shape[-2] for shape in calls} == set(SIZES)
    assert {len(shape) for shape in calls} == {3}  # as in the model: one text of many rows

"""Models of the zoo with what advice says done by hand, in the words that it prints.

Each answers what the zoo's model of that name answers (``benchmarks/tests/test_architectures.py``).
Nothing here uses the rewrites of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import nn
from torch.nn import functional

from benchmarks.zoo import model as zoo
from pytest_sme2 import register_model

# Constants stand outside of `forward`, as buffers do.
CAUSAL = {length: torch.triu(torch.full((length, length), -1e4), 1) for length in (16, 32)}


class Calling(nn.Module):
    """A network that calls a function of its own in place of PyTorch's."""

    def __init__(self, inner: nn.Module, place: Any, function: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self.place, self.function = inner, place, function

    def forward(self, *values: torch.Tensor) -> Any:
        with mock.patch.object(self.place, self.function.__name__, self.function):
            return self.inner(*values)


class ByHand:
    """Stands before the zoo's class."""

    CALLED: ClassVar[tuple[Any, ...]] = ()
    MODULES: ClassVar[dict[type[nn.Module], Callable[[Any], nn.Module]]] = {}

    def __init_subclass__(cls) -> None:
        """Names and options stay those of the zoo's class."""

    def get_eager_model(self) -> nn.Module:
        network = super().get_eager_model().eval()  # type: ignore[misc]
        for parent in list(network.modules()):
            for name, child in parent.named_children():
                if type(child) in self.MODULES:
                    setattr(parent, name, self.MODULES[type(child)](child))
        return Calling(network, *self.CALLED) if self.CALLED else network


def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    heads, times = query.shape[1], query.shape[1] // key.shape[1]
    if times > 1:
        key, value = (
            torch.cat([one[:, head // times : head // times + 1] for head in range(heads)], 1)
            for one in (key, value)
        )
    scaled = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = torch.bmm(scaled.flatten(0, 1), key.flatten(0, 1).transpose(1, 2))
    if is_causal:
        scores = scores + CAUSAL[query.shape[2]]
    elif attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, -1e4)
        if attn_mask.dim() == 4:
            attn_mask = attn_mask.expand(*query.shape[:2], *attn_mask.shape[2:]).flatten(0, 1)
        scores = scores + attn_mask
    answer = torch.bmm(torch.softmax(scores, -1), value.flatten(0, 1))
    return answer.unflatten(0, query.shape[:2])


class Attending(ByHand):
    CALLED: ClassVar[tuple[Any, ...]] = (functional, scaled_dot_product_attention)


@register_model("vit", variants=("fp32",))
class Vit(Attending, zoo.VisionTransformer): ...


@register_model("whisper_encoder", variants=("fp32",))
class WhisperEncoder(Attending, zoo.WhisperSpeech): ...


@register_model("whisper_decoder", variants=("fp32",))
class WhisperDecoder(Attending, zoo.WhisperText): ...


@register_model("qwen2", variants=("fp32",))
class Qwen2(Attending, zoo.Qwen2): ...


@register_model("bert", variants=("fp32",))
class Bert(Attending, zoo.Bert): ...


@register_model("distilbert", variants=("fp32",))
class Distilbert(Attending, zoo.DistilbertModel): ...


@register_model("llama", variants=("fp32",))
class Llama(Attending, zoo.LlamaModel): ...


@register_model("mistral", variants=("fp32",))
class Mistral(Attending, zoo.MistralModel): ...


@register_model("gemma", variants=("fp32",))
class Gemma(Attending, zoo.GemmaModel): ...


@register_model("dpt", variants=("fp32",))
class Dpt(Attending, zoo.DptModel): ...


@register_model("conformer", variants=("fp32",))
class Conformer(Attending, zoo.ConformerModel): ...


@register_model("memory_attention", variants=("fp32",))
class MemoryAttention(Attending, zoo.MemoryAttention): ...


@register_model("denoiser", variants=("fp32",))
class Denoiser(Attending, zoo.Denoiser): ...


@register_model("t5", variants=("fp32",))
class T5(Attending, zoo.T5Model): ...


def pow(value: torch.Tensor, exponent: float) -> torch.Tensor:  # noqa: A001
    return value * value * value if exponent == 3 else value**exponent


@register_model("gpt2", variants=("fp32",))
class Gpt2(ByHand, zoo.Gpt2):
    CALLED: ClassVar[tuple[Any, ...]] = (torch, pow)


def expand_as(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """What it is multiplied by repeats it."""
    return value


@register_model("mobilevit_v2", variants=("fp32",))
class MobilevitV2(ByHand, zoo.MobilevitV2Model):
    CALLED: ClassVar[tuple[Any, ...]] = (torch.Tensor, expand_as)


@register_model("wav2vec2", variants=("fp32",))
class Wav2vec2(ByHand, zoo.Wav2vec2Model):
    """The weights that are scaled in each inference are kept."""

    def get_eager_model(self) -> nn.Module:
        network = super().get_eager_model()
        for module in network.modules():
            if hasattr(module, "parametrizations"):
                nn.utils.parametrize.remove_parametrizations(module, "weight")
        return network


class Norm(nn.Module):
    """LayerNorm whose means are products."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.norm, size = norm, norm.normalized_shape[0]
        self.register_buffer("m", torch.full((1, size), 1 / size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c = x - functional.linear(x, self.m)
        scale = torch.rsqrt(functional.linear(c * c, self.m) + self.norm.eps)
        return c * scale * self.norm.weight + self.norm.bias


@register_model("swin", variants=("fp32",))
class Swin(ByHand, zoo.SwinModel):
    MODULES: ClassVar[dict[Any, Any]] = {nn.LayerNorm: Norm}


class Groups(nn.Module):
    """GroupNorm with the means of an image, those of groups by a 1x1 convolution."""

    def __init__(self, norm: nn.GroupNorm) -> None:
        super().__init__()
        self.norm, size = norm, norm.num_channels // norm.num_groups
        part = torch.full((size, size), 1 / size)
        self.register_buffer("m", torch.block_diag(*[part] * norm.num_groups)[:, :, None, None])
        self.register_buffer("weight", norm.weight.detach().reshape(1, -1, 1, 1))
        self.register_buffer("bias", norm.bias.detach().reshape(1, -1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = functional.conv2d(x.mean((2, 3), keepdim=True), self.m)
        square = functional.conv2d((x * x).mean((2, 3), keepdim=True), self.m)
        scale = torch.rsqrt(torch.relu(square - mean * mean) + self.norm.eps) * self.weight
        return x * scale + (self.bias - mean * scale)


@register_model("scan_unet", variants=("fp32",))
class Scan(ByHand, zoo.Scan):
    MODULES: ClassVar[dict[Any, Any]] = {nn.GroupNorm: Groups}


@register_model("unet", variants=("fp32",))
class UNet(ByHand, zoo.UnetModel):
    MODULES: ClassVar[dict[Any, Any]] = {nn.GroupNorm: Groups}


class Narrow(nn.Module):
    """A depthwise convolution of 7x7 as the sum of 3x7, 3x7 and 1x7."""

    def __init__(self, wide: nn.Conv2d) -> None:
        super().__init__()
        self.wide = wide
        rows = [wide.weight.detach()[:, :, start : start + 3] for start in (0, 3, 6)]
        self.rows = nn.ParameterList(map(nn.Parameter, rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, padded = x.shape[2], functional.pad(x, (0, 0, 3, 3))
        parts = [
            functional.conv2d(
                padded[:, :, 3 * n : 3 * n + height + row.shape[2] - 1], row,
                None if n else self.wide.bias, padding=(0, 3), groups=self.wide.groups,
            )
            for n, row in enumerate(self.rows)
        ]  # fmt: skip
        return parts[0] + parts[1] + parts[2]


def narrow(layer: nn.Conv2d) -> nn.Module:
    large = layer.kernel_size == (7, 7) and layer.groups == layer.in_channels == layer.out_channels
    return Narrow(layer) if large else layer


@register_model("convnext_v2", variants=("fp32",))
class ConvNeXtV2(ByHand, zoo.ConvNeXtV2):
    MODULES: ClassVar[dict[Any, Any]] = {nn.Conv2d: narrow}


@register_model("fastvit", variants=("fp32",))
class FastVit(ByHand, zoo.FastVit):
    MODULES: ClassVar[dict[Any, Any]] = {nn.Conv2d: narrow}


@register_model("convnext", variants=("fp32",))
class ConvNeXt(ByHand, zoo.ConvNeXt):
    MODULES: ClassVar[dict[Any, Any]] = {nn.Conv2d: narrow}


class Steps(nn.Module):
    """An LSTM or GRU, its steps written out with a slice for each gate."""

    def __init__(self, layer: nn.LSTM | nn.GRU) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        sides = [
            self.side(x, end) for end in ("_l0", "_l0_reverse")[: 1 + self.layer.bidirectional]
        ]
        return torch.cat(sides, -1) if len(sides) > 1 else sides[0], None

    def side(self, x: torch.Tensor, end: str) -> torch.Tensor:
        weight, own = (getattr(self.layer, f"weight_{one}h{end}") for one in "ih")
        bias, shift = (getattr(self.layer, f"bias_{one}h{end}") for one in "ih")
        n, given = self.layer.hidden_size, functional.linear(x, weight, bias)
        state = memory = None
        found: dict[int, torch.Tensor] = {}
        steps = range(x.shape[1])
        for step in reversed(steps) if "reverse" in end else steps:
            # Before the first step the state is zero, and its product is the bias.
            b = shift if state is None else functional.linear(state, own, shift)
            a = given[:, step : step + 1].flatten(0, 1)
            if isinstance(self.layer, nn.LSTM):
                c = a + b
                new = torch.sigmoid(c[:, :n]) * torch.tanh(c[:, 2 * n : 3 * n])
                if memory is not None:
                    new = new + torch.sigmoid(c[:, n : 2 * n]) * memory
                memory = new
                state = torch.sigmoid(c[:, 3 * n :]) * torch.tanh(memory)
            else:
                gates = torch.sigmoid(a[:, : 2 * n] + b[..., : 2 * n])
                new = torch.tanh(a[:, 2 * n :] + gates[:, :n] * b[..., 2 * n :])
                state = new + gates[:, n:] * (-new if state is None else state - new)
            found[step] = state
        return torch.cat([found[step] for step in steps]).reshape(1, len(steps), n)


_RECURRENT = {nn.LSTM: Steps, nn.GRU: Steps}


@register_model("lstm", variants=("fp32",))
class Lstm(ByHand, zoo.Lstm):
    MODULES: ClassVar[dict[Any, Any]] = _RECURRENT


@register_model("gru", variants=("fp32",))
class Gru(ByHand, zoo.Gru):
    MODULES: ClassVar[dict[Any, Any]] = _RECURRENT


@register_model("crnn", variants=("fp32",))
class TextReader(ByHand, zoo.TextReader):
    MODULES: ClassVar[dict[Any, Any]] = _RECURRENT


class Flat(nn.Module):
    """A Conv1d on images of height 1."""

    def __init__(self, layer: nn.Conv1d) -> None:
        super().__init__()
        self.layer = layer
        self.weight = nn.Parameter(layer.weight.detach().unsqueeze(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        of = self.layer
        steps = [(1, *of.stride), (0, *of.padding), (1, *of.dilation)]
        return functional.conv2d(x, self.weight, of.bias, *steps, of.groups)


@register_model("tcn", variants=("fp32",))
class TemporalNetwork(ByHand, zoo.TemporalNetwork):
    MODULES: ClassVar[dict[Any, Any]] = {nn.Conv1d: Flat}

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(value.unsqueeze(2))[..., -1].flatten(1))


@register_model("speech", variants=("fp32",))
class Speech(ByHand, zoo.SpeechModel):
    MODULES: ClassVar[dict[Any, Any]] = {
        nn.Conv1d: Flat,
        nn.AdaptiveAvgPool1d: lambda _: nn.AdaptiveAvgPool2d(1),
    }

    def get_eager_model(self) -> nn.Module:
        network = super().get_eager_model()
        for layer in network:
            # Its check of dimensions alone differs.
            if isinstance(layer, nn.BatchNorm1d):
                layer.__class__ = nn.BatchNorm2d
        return nn.Sequential(nn.Unflatten(1, (40, 1)), network)


def one_hot(places: torch.Tensor, size: int) -> torch.Tensor:
    return functional.one_hot(places, size).float()


@register_model("graph_net", variants=("fp32",))
class GraphNetwork(zoo.GraphNetwork):
    """Reading at the ends of edges and adding up there as products with constants."""

    def __init__(self) -> None:
        super().__init__()
        for name, end in zip(("start", "end"), self.ends, strict=True):
            self.register_buffer(name, one_hot(end, 64))
        self.register_buffer("sums", self.end.T.contiguous())

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        for message, update in zip(self.messages, self.updates, strict=True):
            read = functional.linear(nodes.T, self.start), functional.linear(nodes.T, self.end)
            found = functional.relu(message(torch.cat([read[0].T, read[1].T], dim=1)))
            sums = functional.linear(found.T, self.sums).T
            nodes = nodes + functional.relu(update(torch.cat([nodes, sums], dim=1)))
        return nodes


@register_model("yolo_head", variants=("fp32",))
class BoxHead(zoo.BoxHead):
    """The softmax over the last dimension, and the mean of distances as a product."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        boxes = self.boxes(image).flatten(2).unflatten(1, (4, self.bins))
        found = torch.softmax(boxes.transpose(2, 3), dim=-1)
        sides = functional.linear(found, self.distances[None]).flatten(2)
        near, far = sides[:, :2], sides[:, 2:]
        centre = torch.cat([(near + far) * 0.5, far - near], dim=1)
        return torch.cat([centre, self.classes(image).flatten(2).sigmoid()], dim=1)


class Half(nn.Module):
    """SiLU of twice what goes in."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return h * torch.tanh(h) + h


@register_model("efficientnet", variants=("fp32",))
class EfficientNet(zoo.EfficientNet):
    """SiLU by tanh, with half the weights of the batch norms before it."""

    def get_eager_model(self) -> nn.Module:
        network = super().get_eager_model()
        for parent in list(network.modules()):
            for name, child in parent.named_children():
                if name == "2" and type(child) is nn.SiLU:
                    parent[1].weight.data *= 0.5
                    parent[1].bias.data *= 0.5
                    parent[2] = Half()
        return network


class Summing(ByHand):
    def get_eager_model(self) -> nn.Module:
        network = super().get_eager_model()
        network.register_buffer("lower", torch.tril(torch.ones(32, 32)))

        def cumsum(value: torch.Tensor, dim: int) -> torch.Tensor:
            return functional.linear(value.transpose(dim, -1), network.lower).transpose(dim, -1)

        return Calling(network, torch, cumsum)


@register_model("mamba", variants=("fp32",))
class Mamba(Summing, zoo.Mamba):
    def get_eager_model(self) -> nn.Module:
        def softplus(x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) + torch.log(torch.exp(-torch.abs(x)) + 1)

        return Calling(super().get_eager_model(), functional, softplus)


@register_model("rwkv", variants=("fp32",))
class Rwkv(Summing, zoo.Rwkv): ...

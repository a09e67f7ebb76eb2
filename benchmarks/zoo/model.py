"""Architectures that people deploy, in small configurations with random weights.

They are written as their libraries have them, so advice meets what users meet. Sizes are small
because an emulator is slow. Operators and their number per layer are those of the large ones. For
those from ``swin`` on, nothing was prepared; some cannot be exported: how that is said counts, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pytest_sme2 import import_torchvision, register_model

WORDS = 32
VOCABULARY = 1000
FEW_WORDS = 500
# What many language models have in common.
_TEXT = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
_DECODER = {
    **_TEXT, "vocab_size": FEW_WORDS, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "use_cache": False,
}  # fmt: skip
_SOUND = {
    **_TEXT, "vocab_size": FEW_WORDS, "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3,
}  # fmt: skip
Inputs = Callable[[], tuple[torch.Tensor, ...]]


def numbers(*shape: int) -> Inputs:
    return staticmethod(lambda: (torch.randn(*shape),))


def image(size: int) -> Inputs:
    return numbers(1, 3, size, size)


def words(count: int = WORDS, known: int = VOCABULARY) -> Inputs:
    return staticmethod(lambda: (torch.randint(0, known, (1, count)),))


class Network:
    """Network and inputs are those of the class."""

    network: Callable[[], nn.Module]
    inputs: Inputs = image(64)

    def get_eager_model(self) -> nn.Module:
        return type(self).network()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return type(self).inputs()


class Own(Network, nn.Module):
    """A network that is written here."""

    def get_eager_model(self) -> nn.Module:
        return self


class ByName(Network):
    """Made by a library that knows its name."""

    name: str
    options: dict[str, Any]

    def __init_subclass__(cls, name: str = "", **options: Any) -> None:
        cls.name, cls.options = name, options


class Asked(nn.Module):
    """A network that a function of its own asks, and that answers with tensors alone."""

    def __init__(self, inner: nn.Module, ask: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self.ask = inner, ask

    def forward(self, *values: torch.Tensor) -> Any:
        return self.ask(self.inner, *values)


def first(network: nn.Module) -> nn.Module:
    """The first output of a Hugging Face model: the others are caches and hidden states."""
    return Asked(network, lambda inner, value: inner(value, return_dict=False)[0])


def _vision() -> Any:
    import_torchvision()
    from torchvision import models

    return models


class Timm(ByName):
    """A network of the library timm."""

    def get_eager_model(self) -> nn.Module:
        import_torchvision()
        import timm

        return timm.create_model(self.name, pretrained=False, **{"num_classes": 10, **self.options})


class Transformer(ByName):
    """A model of Hugging Face's library; the options are those of its configuration."""

    inputs = words()
    pooled: bool | None = None
    """Whether a pooling layer follows, where there is a choice."""

    def get_eager_model(self) -> nn.Module:
        import transformers

        kind = getattr(transformers, self.name)
        choices = {} if self.pooled is None else {"add_pooling_layer": self.pooled}
        return first(kind(kind.config_class(**self.options), **choices))


@register_model("efficientnet", variants=("fp32", "fp16", "int8"))
class EfficientNet(Network):
    def get_eager_model(self) -> nn.Module:
        import_torchvision()
        from torchvision.models.efficientnet import EfficientNet as Network
        from torchvision.models.efficientnet import MBConvConfig

        # As in B0, with one block where it has up to four.
        sizes = ((1, 3, 1, 32, 16), (6, 3, 2, 16, 24), (6, 5, 2, 24, 40), (6, 3, 2, 40, 80))
        blocks = [MBConvConfig(*size, 1) for size in (*sizes, (6, 5, 1, 80, 112))]
        return Network(blocks, dropout=0.2)


@register_model("convnext", variants=("fp32", "fp16", "int8"))
class ConvNeXt(Network):
    def get_eager_model(self) -> nn.Module:
        import_torchvision()
        from torchvision.models.convnext import CNBlockConfig
        from torchvision.models.convnext import ConvNeXt as Network

        # As in tiny, with one block where it has three or nine.
        widths = (96, 192, 384, 768, None)
        return Network([CNBlockConfig(*pair, 1) for pair in itertools.pairwise(widths)])


@register_model("vit", variants=("fp32", "fp16", "int8", "int8_dynamic"))
class VisionTransformer(
    Transformer, name="ViTModel", hidden_size=192, num_hidden_layers=2, num_attention_heads=3,
    intermediate_size=768, image_size=64,
):  # fmt: skip
    inputs, pooled = image(64), False


@register_model("whisper_encoder", variants=("fp32", "fp16", "int8", "int8_dynamic"))
class WhisperSpeech(Network):
    inputs = numbers(1, 80, 100)

    def get_eager_model(self) -> nn.Module:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        config = WhisperConfig(
            d_model=128, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=512,
            max_source_positions=50,
        )  # fmt: skip
        return first(WhisperEncoder(config))


@register_model("gpt2", variants=("fp32", "fp16", "int8", "int8_dynamic", "int4"))
class Gpt2(
    Transformer, name="GPT2LMHeadModel", n_embd=128, n_layer=2, n_head=4, vocab_size=VOCABULARY,
    n_positions=64, use_cache=False,
):  # fmt: skip
    """A decoder of words."""


@register_model("qwen2", variants=("fp32", "fp16", "int8", "int8_dynamic", "int4"))
class Qwen2(
    Transformer, name="Qwen2ForCausalLM",
    **{**_DECODER, "hidden_size": 128, "intermediate_size": 352, "vocab_size": VOCABULARY},
):  # fmt: skip
    """Two heads share keys and values."""


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(128, 10)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        answers, _ = self.layer(steps)
        return self.head(answers[:, -1])


@register_model("lstm", variants=("fp32", "fp16", "int8"))
class Lstm(Network):
    network = staticmethod(lambda: Recurrent(nn.LSTM(64, 128, batch_first=True)))
    inputs = numbers(1, 8, 64)


@register_model("gru", variants=("fp32", "fp16", "int8"))
class Gru(Network):
    network = staticmethod(lambda: Recurrent(nn.GRU(64, 128, batch_first=True)))
    inputs = numbers(1, 8, 64)


class ConvBlock(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(),
        )


class SplitBlock(nn.Module):
    """Half of the channels go through two convolutions, as in YOLO's C2f."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.first = ConvBlock(channels, channels, 1)
        self.inner = nn.Sequential(ConvBlock(half, half), ConvBlock(half, half))
        self.last = ConvBlock(half * 3, channels, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        left, right = self.first(image).chunk(2, dim=1)
        return self.last(torch.cat([left, right, self.inner(right)], dim=1))


@register_model("detector", variants=("fp32", "fp16", "int8"))
class Detector(Own):
    """Two scales of boxes and classes, decoded with their grids."""

    def __init__(self, classes: int = 20) -> None:
        super().__init__()
        self.stem = nn.Sequential(ConvBlock(3, 16, stride=2), ConvBlock(16, 32, stride=2))
        self.coarse = ConvBlock(32, 64, stride=2)
        self.split = SplitBlock(64)
        self.join = ConvBlock(96, 32)
        self.heads = nn.ModuleList(nn.Conv2d(channels, 4 + classes, 1) for channels in (32, 64))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fine = self.stem(image)
        coarse = self.split(self.coarse(fine))
        larger = nn.functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        fine = self.join(torch.cat([larger, fine], dim=1))
        boxes, classes = [], []
        for head, features, stride in zip(self.heads, (fine, coarse), (4, 8), strict=True):
            found = head(features).flatten(2)
            height, width = features.shape[2:]
            rows, columns = torch.meshgrid(
                torch.arange(height, dtype=image.dtype),
                torch.arange(width, dtype=image.dtype),
                indexing="ij",
            )
            centres = torch.stack([columns, rows]).flatten(1)
            place, size = found[:, :2].sigmoid() + centres, found[:, 2:4].exp()
            boxes.append(torch.cat([place, size], dim=1) * stride)
            classes.append(found[:, 4:].sigmoid())
        return torch.cat(boxes, dim=2), torch.cat(classes, dim=2)


@register_model("bert", variants=("fp32", "fp16", "int8", "int8_dynamic", "int4"))
class Bert(
    Transformer, name="BertModel", hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=512, vocab_size=VOCABULARY,
):  # fmt: skip
    pooled = False


@register_model("mobilenet_v4", variants=("fp32", "fp16", "int8"))
class MobileNetV4(Timm, name="mobilenetv4_conv_small_050", num_classes=VOCABULARY):
    """Its layers are searched for."""


@register_model("lraspp", variants=("fp32", "fp16", "int8"))
class Segmentation(Network):
    """LR-ASPP on a MobileNetV3, the small network of torchvision for segmentation."""

    def get_eager_model(self) -> nn.Module:
        made = _vision().segmentation.lraspp_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=21
        )
        return Asked(made, lambda inner, value: inner(value)["out"])


class CausalBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.before = 2 * dilation
        self.first = nn.Conv1d(inputs, outputs, 3, dilation=dilation)
        self.second = nn.Conv1d(outputs, outputs, 3, dilation=dilation)
        self.beside = nn.Conv1d(inputs, outputs, 1)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        found = functional.relu(self.first(functional.pad(value, (self.before, 0))))
        found = functional.relu(self.second(functional.pad(found, (self.before, 0))))
        return functional.relu(found + self.beside(value))


@register_model("tcn", variants=("fp32", "fp16", "int8"))
class TemporalNetwork(Own):
    """Only its last step is read, as in forecasts."""

    inputs = numbers(1, 32, 64)

    def __init__(self) -> None:
        super().__init__()
        sizes = (32, 48, 48, 48)
        self.blocks = nn.Sequential(*(CausalBlock(sizes[n], sizes[n + 1], 2**n) for n in range(3)))
        self.head = nn.Linear(48, 10)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(value)[:, :, -1])


@register_model("crnn", variants=("fp32", "fp16", "int8"))
class TextReader(Own):
    """Convolutions over a line of text, then an LSTM over its columns."""

    inputs = numbers(1, 1, 16, 48)

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d((2, 1)),
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d((4, 1)),
        )  # fmt: skip
        self.recurrent = nn.LSTM(64, 48, bidirectional=True, batch_first=True)
        self.head = nn.Linear(96, 40)

    def forward(self, line: torch.Tensor) -> torch.Tensor:
        columns = self.features(line).squeeze(2).permute(0, 2, 1)
        answers, _ = self.recurrent(columns)
        return functional.log_softmax(self.head(answers), dim=2)


@register_model("graph_net", variants=("fp32", "fp16", "int8"))
class GraphNetwork(Own):
    """Messages along the edges of a mesh that never changes, added up at each node."""

    inputs = numbers(64, 64)

    def __init__(self, nodes: int = 64, edges: int = 256, width: int = 64) -> None:
        super().__init__()
        ends = torch.randint(0, nodes, (2, edges), generator=torch.Generator().manual_seed(1))
        self.register_buffer("ends", ends)
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        start, end = self.ends
        for message, update in zip(self.messages, self.updates, strict=True):
            pair = torch.cat([nodes[start], nodes[end]], dim=1)
            found = functional.relu(message(pair))
            sums = torch.zeros_like(nodes).index_add(0, end, found)
            nodes = nodes + functional.relu(update(torch.cat([nodes, sums], dim=1)))
        return nodes


class Attention(nn.Module):
    """Queries may turn with their place, as in SAM 2's memory attention."""

    def __init__(self, width: int, heads: int, *, turning: bool = False) -> None:
        super().__init__()
        self.heads, self.turning = heads, turning
        self.inputs = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def _turned(self, value: torch.Tensor) -> torch.Tensor:
        half = value.shape[-1] // 2
        speed = torch.arange(half, dtype=value.dtype) / half
        angle = torch.arange(value.shape[2], dtype=value.dtype)[:, None] * torch.exp(-4 * speed)
        left, right = value.chunk(2, dim=-1)
        turned = (
            left * angle.cos() - right * angle.sin(),
            left * angle.sin() + right * angle.cos(),
        )
        return torch.cat(turned, dim=-1)

    def forward(self, value: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        query, key, answer = (
            layer(one).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, one in zip(self.inputs, (value, memory, memory), strict=True)
        )
        if self.turning:
            query, key = self._turned(query), self._turned(key)
        found = functional.scaled_dot_product_attention(query, key, answer)
        return self.out(found.transpose(1, 2).flatten(2))


class MemoryLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = Attention(width, 2, turning=True)
        self.memory = Attention(width, 2, turning=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, value: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        one = self.norms[0](value)
        value = value + self.own(one, one)
        value = value + self.memory(self.norms[1](value), memory)
        return value + self.outer(functional.relu(self.inner(self.norms[2](value))))


@register_model("memory_attention", variants=("fp32", "fp16", "int8"))
class MemoryAttention(Own):
    inputs = staticmethod(lambda: (torch.randn(1, 64, 64), torch.randn(1, 96, 64)))

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MemoryLayer(64) for _ in range(2))

    def forward(self, value: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            value = layer(value, memory)
        return value


@register_model("whisper_decoder", variants=("fp32", "fp16", "int8", "int8_dynamic"))
class WhisperText(Network):
    inputs = staticmethod(lambda: (torch.randint(0, VOCABULARY, (1, 16)), torch.randn(1, 50, 64)))

    def get_eager_model(self) -> nn.Module:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperDecoder

        config = WhisperConfig(
            d_model=64, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=256,
            vocab_size=VOCABULARY, max_target_positions=64, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1,
        )  # fmt: skip

        def answer(inner: Any, words: torch.Tensor, sound: torch.Tensor) -> Any:
            return inner(words, encoder_hidden_states=sound, use_cache=False)[0]

        return Asked(WhisperDecoder(config), answer)


class SelectiveScan(nn.Module):
    """Mamba's block, its scan in the form of two sums over time."""

    def __init__(self, width: int = 64, states: int = 4) -> None:
        super().__init__()
        self.width, self.states = width, states
        self.into = nn.Linear(width, 2 * width)
        self.near = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.chosen = nn.Linear(width, width + 2 * states)
        self.decay = nn.Parameter(torch.linspace(0.1, 1.0, states))
        self.out = nn.Linear(width, width)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        length = value.shape[1]
        inner, gate = self.into(value).chunk(2, dim=-1)
        inner = functional.silu(self.near(inner.transpose(1, 2))[:, :, :length].transpose(1, 2))
        sizes = [self.width, self.states, self.states]
        step, write, read = self.chosen(inner).split(sizes, dim=-1)
        step = functional.softplus(step) * 0.1
        faded = torch.cumsum(step, dim=1)[..., None] * self.decay
        given = (step * inner)[..., None] * write[:, :, None] * torch.exp(faded)
        state = torch.cumsum(given, dim=1) * torch.exp(-faded)
        found = (state * read[:, :, None]).sum(-1)
        return value + self.out(found * functional.silu(gate))


@register_model("mamba", variants=("fp32", "fp16", "int8"))
class Mamba(Network):
    network = staticmethod(lambda: nn.Sequential(SelectiveScan(), SelectiveScan()))
    inputs = numbers(1, 32, 64)


class TimeMix(nn.Module):
    """RWKV's block: each step sees the one before it, and sums that fade."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.rand(3, width))
        self.inputs = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.fade = 0.05

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        now = self.norm(value)
        before = functional.pad(now, (0, 0, 1, 0))[:, :-1]
        mixed = (now * part + before * (1 - part) for part in self.mix)
        gate, key, found = (layer(one) for layer, one in zip(self.inputs, mixed, strict=True))
        time = torch.arange(value.shape[1], dtype=value.dtype)[:, None] * self.fade
        weight = torch.exp(torch.clamp(key, max=4.0) + time)
        mean = torch.cumsum(weight * found, dim=1) / torch.cumsum(weight, dim=1)
        return value + self.out(torch.sigmoid(gate) * mean)


@register_model("rwkv", variants=("fp32", "fp16", "int8"))
class Rwkv(Network):
    network = staticmethod(lambda: nn.Sequential(TimeMix(), TimeMix()))
    inputs = numbers(1, 32, 64)


class ResponseBlock(nn.Module):
    """ConvNeXt V2's block, with its normalization over the image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.rand(4 * width))
        self.shift = nn.Parameter(torch.rand(4 * width))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        value = functional.gelu(self.inner(self.norm(self.wide(image).permute(0, 2, 3, 1))))
        size = torch.sqrt((value * value).sum((1, 2), keepdim=True))
        value = self.scale * value * (size / (size.mean(-1, keepdim=True) + 1e-6)) + value
        return image + self.outer(value + self.shift).permute(0, 3, 1, 2)


@register_model("convnext_v2", variants=("fp32", "fp16", "int8"))
class ConvNeXtV2(Network):
    def get_eager_model(self) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 48, 4, 4), ResponseBlock(48), ResponseBlock(48))


class MixerBlock(nn.Module):
    """FastViT's, after its branches became one: 7x7 by channel, then two of 1x1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mixer = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.wide = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.inner, self.outer = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(3 * width, width, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        image = image + self.mixer(image)
        return image + self.outer(functional.gelu(self.inner(self.wide(image))))


@register_model("fastvit", variants=("fp32", "fp16", "int8"))
class FastVit(Network):
    def get_eager_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 48, 3, 2, 1), nn.GELU(), nn.Conv2d(48, 48, 3, 2, 1, groups=48), nn.GELU(),
            MixerBlock(48), nn.Conv2d(48, 96, 7, 2, 3, groups=48), MixerBlock(96),
        )  # fmt: skip


class GroupBlock(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.ReLU()
        )


@register_model("scan_unet", variants=("fp32", "fp16", "int8"))
class Scan(Own):
    """A U-Net for scans of one channel, as medical ones are."""

    inputs = numbers(1, 1, 32, 32)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GroupBlock(1, 16), GroupBlock(16, 32)
        self.up, self.last = nn.ConvTranspose2d(32, 16, 2, 2), GroupBlock(32, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        fine = self.first(image)
        coarse = self.second(functional.max_pool2d(fine, 2))
        return self.head(self.last(torch.cat([fine, self.up(coarse)], dim=1)))


class Reflected(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__(
            nn.ReflectionPad2d(size // 2),
            nn.Conv2d(inputs, outputs, size, stride),
            nn.InstanceNorm2d(outputs, affine=True),
        )


@register_model("style_transfer", variants=("fp32", "fp16", "int8"))
class StyleTransfer(Network):
    inputs = image(32)

    def get_eager_model(self) -> nn.Module:
        return nn.Sequential(
            Reflected(3, 16, 9), nn.ReLU(), Reflected(16, 32, 3, 2), nn.ReLU(),
            Reflected(32, 32, 3), nn.ReLU(), nn.Upsample(scale_factor=2, mode="nearest"),
            Reflected(32, 16, 3), nn.ReLU(), Reflected(16, 3, 9),
        )  # fmt: skip


@register_model("yolo_head", variants=("fp32", "fp16", "int8"))
class BoxHead(Own):
    """YOLO's head: each side of a box is the mean of a distribution over 16 distances."""

    inputs = numbers(1, 32, 16, 16)

    def __init__(self, classes: int = 20, bins: int = 16) -> None:
        super().__init__()
        self.bins = bins
        self.boxes = nn.Sequential(ConvBlock(32, 64), nn.Conv2d(64, 4 * bins, 1))
        self.classes = nn.Sequential(ConvBlock(32, 32), nn.Conv2d(32, classes, 1))
        self.register_buffer("distances", torch.arange(bins, dtype=torch.float32))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        boxes = self.boxes(image).flatten(2).unflatten(1, (4, self.bins))
        sides = (torch.softmax(boxes, dim=2) * self.distances[:, None]).sum(2)
        near, far = sides.chunk(2, dim=1)
        centre = torch.cat([(near + far) * 0.5, far - near], dim=1)
        return torch.cat([centre, self.classes(image).flatten(2).sigmoid()], dim=1)


class Parallel(nn.Module):
    """HRNet's exchange: two sizes side by side, each gets the other's."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ModuleList((nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)))
        self.down, self.up = nn.Conv2d(32, 64, 3, 2, 1), nn.Conv2d(64, 32, 1)

    def forward(
        self, fine: torch.Tensor, coarse: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        fine, coarse = functional.relu(self.own[0](fine)), functional.relu(self.own[1](coarse))
        larger = functional.interpolate(self.up(coarse), scale_factor=2.0, mode="bilinear")
        return functional.relu(fine + larger), functional.relu(coarse + self.down(fine))


@register_model("hrnet", variants=("fp32", "fp16", "int8"))
class HighResolution(Own):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.split = nn.Conv2d(3, 32, 3, 4, 1), nn.Conv2d(32, 64, 3, 2, 1)
        self.stages = nn.ModuleList(Parallel() for _ in range(2))
        self.head = nn.Conv2d(32, 17, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        fine = functional.relu(self.stem(image))
        coarse = functional.relu(self.split(fine))
        for stage in self.stages:
            fine, coarse = stage(fine, coarse)
        return self.head(fine)


class DenoisingBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(2))
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(32, width)

    def forward(self, image: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        found = self.layers[0](functional.silu(self.norms[0](image)))
        found = found + self.time(time)[:, :, None, None]
        return image + self.layers[1](functional.silu(self.norms[1](found)))


@register_model("denoiser", variants=("fp32", "fp16", "int8"))
class Denoiser(Own):
    """A diffusion U-Net: the time as sines, attention at its smallest size."""

    inputs = staticmethod(lambda: (torch.randn(1, 4, 16, 16), torch.tensor([0.5])))

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(4, 32, 3, padding=1), nn.Conv2d(32, 64, 3, 2, 1)
        self.fine, self.coarse = DenoisingBlock(32), DenoisingBlock(64)
        self.attention, self.norm = Attention(64, 2), nn.GroupNorm(8, 64)
        self.up, self.last = nn.Conv2d(64, 32, 3, padding=1), DenoisingBlock(32)
        self.head = nn.Conv2d(32, 4, 3, padding=1)

    def forward(self, image: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        speed = torch.exp(torch.arange(16, dtype=image.dtype) * (-math.log(10000) / 16))
        angle = time[:, None] * speed
        sines = torch.cat([angle.sin(), angle.cos()], dim=1)
        fine = self.fine(self.stem(image), sines)
        coarse = self.coarse(self.down(fine), sines)
        words = self.norm(coarse).flatten(2).transpose(1, 2)
        coarse = coarse + self.attention(words, words).transpose(1, 2).unflatten(2, (8, 8))
        larger = functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        return self.head(self.last(fine + self.up(larger), sines))


@register_model("depth_anything", variants=("fp32", "fp16", "int8"))
class Depth(Own):
    """Depth Anything in small: a transformer's words as images of two sizes, then joined."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        layer = {"nhead": 2, "dim_feedforward": 4 * width, "batch_first": True}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, activation="gelu", norm_first=True, **layer)
            for _ in range(2)
        )
        self.larger = nn.ConvTranspose2d(width, 32, 2, 2)
        self.join, self.side = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(width, 32, 1)
        self.head = nn.Sequential(nn.Conv2d(32, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.patches(image)
        size, words = found.shape[2:], found.flatten(2).transpose(1, 2)
        first = self.layers[0](words)
        second = self.layers[1](first).transpose(1, 2).unflatten(2, size)
        first = first.transpose(1, 2).unflatten(2, size)
        larger = functional.interpolate(self.side(second), scale_factor=2.0, mode="bilinear")
        joined = functional.relu(self.join(self.larger(first) + larger))
        return self.head(functional.interpolate(joined, scale_factor=2.0, mode="bilinear"))


class LiteBlock(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, size: int, stride: int, times: int = 6) -> None:
        inner = inputs * times
        super().__init__(
            nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, inner, size, stride, size // 2, groups=inner, bias=False),
            nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip


@register_model("efficientnet_lite", variants=("fp32", "fp16", "int8"))
class EfficientNetLite(Network):
    def get_eager_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(),
            LiteBlock(32, 16, 3, 1, 1), LiteBlock(16, 24, 3, 2), LiteBlock(24, 40, 5, 2),
            LiteBlock(40, 80, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(80, 10),
        )  # fmt: skip


@register_model("swin", variants=("fp32", "fp16"))
class SwinModel(Network):
    def get_eager_model(self) -> nn.Module:
        _vision()
        from torchvision.models.swin_transformer import SwinTransformer

        return SwinTransformer(
            patch_size=[4, 4], embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4],
            num_classes=10,
        )  # fmt: skip


@register_model("resnext", variants=("fp32", "fp16"))
class ResnextModel(Network):
    inputs = image(32)

    def get_eager_model(self) -> nn.Module:
        from torchvision.models.resnet import Bottleneck

        return _vision().ResNet(
            Bottleneck, [1, 1, 1, 1], num_classes=10, groups=32, width_per_group=4
        )


@register_model("regnet", variants=("fp32", "fp16"))
class RegnetModel(Network):
    inputs = image(32)

    def get_eager_model(self) -> nn.Module:
        _vision()
        from torchvision.models.regnet import BlockParams, RegNet

        parameters = BlockParams.from_init_params(4, 16, 40.0, 2.2, 16, se_ratio=0.25)
        return RegNet(parameters, num_classes=10)


@register_model("deeplab", variants=("fp32", "fp16"))
class DeeplabModel(Network):
    def get_eager_model(self) -> nn.Module:
        made = _vision().segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        )
        return Asked(made, lambda inner, value: inner(value)["out"])


@register_model("ssdlite", variants=("fp32", "fp16"))
class SsdliteModel(Network):
    """Its network alone: what follows chooses boxes by their values."""

    def get_eager_model(self) -> nn.Module:
        made = _vision().detection.ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        )

        def heads(inner: Any, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = inner.head(list(inner.backbone(value).values()))
            return found["bbox_regression"], found["cls_logits"]

        return Asked(made, heads)


@register_model("fcos", variants=("fp32", "fp16"))
class FcosModel(Network):
    """As a whole, so it chooses boxes by their values: a known refusal."""

    def get_eager_model(self) -> nn.Module:
        made = _vision().detection.fcos_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=5
        )
        return Asked(made, lambda inner, value: inner([value[0]])[0]["boxes"])


@register_model("mobilevit_v2", variants=("fp32", "fp16"))
class MobilevitV2Model(Timm, name="mobilevitv2_050"):
    """Attention between the same places of all patches."""


@register_model("efficientformer", variants=("fp32", "fp16"))
class EfficientformerModel(
    Timm, name="efficientformer_l1", depths=(1, 1, 1, 2), embed_dims=(16, 32, 48, 64), num_vit=1
):
    inputs = image(224)


@register_model("efficientvit", variants=("fp32", "fp16"))
class EfficientvitModel(Timm, name="efficientvit_b0"):
    """Attention that is linear in the size."""


@register_model("dpt", variants=("fp32", "fp16"))
class DptModel(
    Transformer, name="DPTForDepthEstimation", **{**_TEXT, "num_hidden_layers": 4}, image_size=32,
    patch_size=8, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16, 32, 48, 64],
    fusion_hidden_size=32, reassemble_factors=[4, 2, 1, 0.5],
):  # fmt: skip
    inputs = image(32)


class Double(nn.Sequential):
    def __init__(self, channels: int, wider: int) -> None:
        super().__init__(
            nn.Conv2d(channels, wider, 3, padding=1), nn.GroupNorm(4, wider), nn.ReLU(),
            nn.Conv2d(wider, wider, 3, padding=1), nn.GroupNorm(4, wider), nn.ReLU(),
        )  # fmt: skip


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([Double(3, 16), Double(16, 32), Double(32, 64)])
        self.widen = nn.ModuleList(
            [nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)]
        )
        self.up = nn.ModuleList([Double(64, 32), Double(32, 16)])
        self.last = nn.Conv2d(16, 4, 1)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        kept = []
        for step, block in enumerate(self.down):
            value = block(value if not step else functional.max_pool2d(value, 2))
            kept.append(value)
        for widen, block, skipped in zip(self.widen, self.up, kept[-2::-1], strict=True):
            value = block(torch.cat([widen(value), skipped], dim=1))
        return self.last(value)


@register_model("unet", variants=("fp32", "fp16"))
class UnetModel(Network):
    inputs = image(32)
    network = UNet


@register_model("wav2vec2", variants=("fp32", "fp16"))
class Wav2vec2Model(
    Transformer, name="Wav2Vec2Model", **_SOUND, num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
):  # fmt: skip
    inputs = numbers(1, 2000)


@register_model("conformer", variants=("fp32", "fp16"))
class ConformerModel(
    Transformer, name="Wav2Vec2ConformerModel", **_SOUND, conv_depthwise_kernel_size=7,
    position_embeddings_type="rotary",
):  # fmt: skip
    inputs = numbers(1, 2000)


@register_model("speech", variants=("fp32", "fp16"))
class SpeechModel(Network):
    """A small net for keywords, of one-dimensional convolutions."""

    inputs = numbers(1, 40, 100)

    def get_eager_model(self) -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in ((40, 64), (64, 64), (64, 64), (64, 64)):
            layers += [nn.Conv1d(before, after, 5, padding=2), nn.BatchNorm1d(after), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 12))


@register_model("distilbert", variants=("fp32", "fp16"))
class DistilbertModel(
    Transformer, name="DistilBertModel", dim=64, hidden_dim=128, n_layers=2, n_heads=4,
    vocab_size=FEW_WORDS, max_position_embeddings=64,
):  # fmt: skip
    inputs = words(16, FEW_WORDS)


@register_model("llama", variants=("fp32", "fp16"))
class LlamaModel(Transformer, name="LlamaForCausalLM", **_DECODER):
    inputs = words(16, FEW_WORDS)


@register_model("mistral", variants=("fp32", "fp16"))
class MistralModel(Transformer, name="MistralForCausalLM", **_DECODER, sliding_window=8):
    inputs = words(16, FEW_WORDS)


@register_model("gemma", variants=("fp32", "fp16"))
class GemmaModel(Transformer, name="GemmaForCausalLM", **_DECODER, head_dim=16):
    inputs = words(16, FEW_WORDS)


@register_model("mixtral", variants=("fp32", "fp16"))
class MixtralModel(
    Transformer, name="MixtralForCausalLM", **_DECODER, num_local_experts=4, num_experts_per_tok=2
):
    inputs = words(16, FEW_WORDS)


@register_model("t5", variants=("fp32", "fp16"))
class T5Model(Network):
    inputs = words(16, FEW_WORDS)

    def get_eager_model(self) -> nn.Module:
        from transformers import T5Config, T5ForConditionalGeneration

        config = T5Config(
            d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=FEW_WORDS,
            use_cache=False,
        )  # fmt: skip

        def both(inner: Any, value: torch.Tensor) -> Any:
            """Encoder and decoder, which gets the same words."""
            return inner(input_ids=value, decoder_input_ids=value, return_dict=False)[0]

        return Asked(T5ForConditionalGeneration(config), both)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(4)
        )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.gate(value), dim=-1)
        answers = torch.stack([expert(value) for expert in self.experts], dim=-1)
        return (answers * weights.unsqueeze(-2)).sum(-1)


@register_model("moe", variants=("fp32", "fp16"))
class MoeModel(Network):
    """Experts that all compute, weighted by a gate: nothing depends on values."""

    inputs = numbers(1, 16, 64)
    network = staticmethod(lambda: nn.Sequential(Experts(), nn.LayerNorm(64), Experts()))


class Dlrm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 32) for _ in range(6))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 21, 64), nn.ReLU(), nn.Linear(64, 1))
        rows, columns = torch.tril_indices(7, 7, -1)
        self.register_buffer("pairs", rows * 7 + columns)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense)
        found = [table(sparse[:, row]) for row, table in enumerate(self.tables)]
        stacked = torch.stack([bottom, *found], dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)
        chosen = products.index_select(1, self.pairs)
        return torch.sigmoid(self.top(torch.cat([bottom, chosen], dim=1)))


@register_model("dlrm", variants=("fp32", "fp16"))
class DlrmModel(Network):
    inputs = staticmethod(lambda: (torch.randn(8, 13), torch.randint(0, 50, (8, 6))))
    network = Dlrm

"""Architectures that people deploy, in small configurations with random weights.

They are written as their libraries have them, so advice meets what users meet. Sizes are small
because an emulator is slow. Operators and their number per layer are those of the large ones. For
those from ``swin`` on, nothing was prepared; some cannot be exported: how that is said counts, too.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pytest_sme2 import import_torchvision, register_model

# timm and transformers find it imported.
VISION = import_torchvision().models
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


def words(count: int = 32, known: int = VOCABULARY) -> Inputs:
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


class Asked(nn.Module):
    """A network that a function of its own asks, and that answers with tensors alone."""

    def __init__(self, inner: nn.Module, ask: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self.ask = inner, ask

    def forward(self, *values: torch.Tensor) -> Any:
        return self.ask(self.inner, *values)


class ByName(Network):
    """Made by a library that knows its name."""

    name: str
    options: dict[str, Any]
    ask: Callable[..., Any] | None = None
    """How it is asked, where that is not by a call."""

    def __init_subclass__(cls, name: str = "", **options: Any) -> None:
        cls.name, cls.options = name, options

    def get_eager_model(self) -> nn.Module:
        made, ask = self.make(), type(self).ask
        return made if ask is None else Asked(made, ask)

    def make(self) -> nn.Module:
        raise NotImplementedError


class Vision(ByName):
    """A network of torchvision."""

    def make(self) -> nn.Module:
        return operator.attrgetter(self.name)(VISION)(**self.options)


class Timm(ByName):
    """A network of the library timm."""

    def make(self) -> nn.Module:
        import timm

        return timm.create_model(self.name, **{"num_classes": 10, **self.options})


class Transformer(ByName):
    """A model of Hugging Face's library; the options are those of its configuration."""

    inputs = words()
    # The other outputs are caches and hidden states.
    ask: Callable[..., Any] = staticmethod(lambda inner, x: inner(x, return_dict=False)[0])
    pooled: bool | None = None
    """Whether a pooling layer follows, where there is a choice."""

    def make(self) -> nn.Module:
        import transformers

        kind = operator.attrgetter(self.name)(transformers)
        choices = {} if self.pooled is None else {"add_pooling_layer": self.pooled}
        return kind(kind.config_class(**self.options), **choices)


@register_model("efficientnet")
class EfficientNet(Network):
    """As B0, with one block where it has up to four."""

    def get_eager_model(self) -> nn.Module:
        sizes = ((1, 3, 1, 32, 16), (6, 3, 2, 16, 24), (6, 5, 2, 24, 40), (6, 3, 2, 40, 80))
        block = VISION.efficientnet.MBConvConfig
        blocks = [block(*size, 1) for size in (*sizes, (6, 5, 1, 80, 112))]
        return VISION.EfficientNet(blocks, dropout=0.2)


@register_model("convnext")
class ConvNeXt(Network):
    """As tiny, with one block where it has three or nine."""

    def get_eager_model(self) -> nn.Module:
        pairs = itertools.pairwise((96, 192, 384, 768, None))
        return VISION.ConvNeXt([VISION.convnext.CNBlockConfig(*pair, 1) for pair in pairs])


@register_model("vit", variants=("fp32", "fp16", "int8", "int8_dynamic"))
class VisionTransformer(
    Transformer, name="ViTModel", hidden_size=192, num_hidden_layers=2, num_attention_heads=3,
    intermediate_size=768, image_size=64,
):  # fmt: skip
    inputs, pooled = image(64), False


@register_model("whisper_encoder", variants=("fp32", "fp16", "int8", "int8_dynamic"))
class WhisperSpeech(
    Transformer, name="models.whisper.modeling_whisper.WhisperEncoder", d_model=128,
    encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=512, max_source_positions=50,
):  # fmt: skip
    inputs = numbers(1, 80, 100)


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
    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.layer = kind(64, 128, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        answers, _ = self.layer(steps)
        return self.head(answers[:, -1])


@register_model("lstm")
class Lstm(Network):
    network, inputs = staticmethod(lambda: Recurrent(nn.LSTM)), numbers(1, 8, 64)


@register_model("gru")
class Gru(Network):
    network, inputs = staticmethod(lambda: Recurrent(nn.GRU)), numbers(1, 8, 64)


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.SiLU())


def grouped(inputs: int, outputs: int, groups: int = 8) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    return nn.Sequential(layer, nn.GroupNorm(groups, outputs), nn.ReLU())


def twice(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(grouped(inputs, outputs, 4), grouped(outputs, outputs, 4))


class Plus(nn.Sequential):
    """What goes in, and what the layers make of it."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + super().forward(value)


@register_model("detector")
class Detector(Own):
    """Two scales of boxes and classes, decoded with their grids, and YOLO's C2f before."""

    def __init__(self, classes: int = 20) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, stride=2), conv(16, 32, stride=2))
        self.coarse = conv(32, 64, stride=2)
        self.first, self.inner = conv(64, 64, 1), nn.Sequential(conv(32, 32), conv(32, 32))
        self.last, self.join = conv(96, 64, 1), conv(96, 32)
        self.heads = nn.ModuleList(nn.Conv2d(channels, 4 + classes, 1) for channels in (32, 64))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fine = self.stem(image)
        left, right = self.first(self.coarse(fine)).chunk(2, dim=1)
        coarse = self.last(torch.cat([left, right, self.inner(right)], dim=1))
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


@register_model("mobilenet_v4")
class MobileNetV4(Timm, name="mobilenetv4_conv_small_050", num_classes=VOCABULARY):
    """Its layers are searched for."""


class Segmenter(Vision):
    inputs = image(64)
    ask = staticmethod(lambda inner, value: inner(value)["out"])


@register_model("lraspp")
class Segmentation(
    Segmenter, name="segmentation.lraspp_mobilenet_v3_large", weights_backbone=None, num_classes=21
):
    """The small network of torchvision for segmentation."""


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


@register_model("tcn")
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


@register_model("crnn")
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


@register_model("graph_net")
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
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        parts = (
            layer(value).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in self.inputs
        )
        found = functional.scaled_dot_product_attention(*parts)
        return self.out(found.transpose(1, 2).flatten(2))


@register_model("memory_attention")
class MemoryAttention(Network):
    """SAM 2's: an image's words ask those of the images before, turned by their places."""

    inputs = staticmethod(lambda: (torch.randn(64, 1, 64), *torch.randn(2, 128, 1, 64)))

    def get_eager_model(self) -> nn.Module:
        from transformers import Sam2VideoConfig
        from transformers.models.sam2_video.modeling_sam2_video import Sam2VideoMemoryAttention

        options = {
            "hidden_size": 64, "num_layers": 2, "num_attention_heads": 2,
            "feed_forward_hidden_size": 256, "rope_feat_sizes": [8, 8],
        }  # fmt: skip
        named = {f"memory_attention_{name}": value for name, value in options.items()}
        config = Sam2VideoConfig(memory_encoder_output_channels=64, **named)
        config._attn_implementation = "sdpa"
        network = Sam2VideoMemoryAttention(config)
        return Asked(network, lambda inner, seen, kept, place: inner(seen, kept, None, place))


@register_model("whisper_decoder", variants=("fp32", "fp16", "int8", "int8_dynamic"))
class WhisperText(
    Transformer, name="models.whisper.modeling_whisper.WhisperDecoder", d_model=64,
    decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=256, vocab_size=VOCABULARY,
    max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=1,
):  # fmt: skip
    inputs = staticmethod(lambda: (torch.randint(0, VOCABULARY, (1, 16)), torch.randn(1, 50, 64)))

    @staticmethod
    def ask(inner: Any, text: torch.Tensor, sound: torch.Tensor) -> Any:
        return inner(text, encoder_hidden_states=sound, use_cache=False)[0]


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


@register_model("mamba")
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


@register_model("rwkv")
class Rwkv(Network):
    network = staticmethod(lambda: nn.Sequential(TimeMix(), TimeMix()))
    inputs = numbers(1, 32, 64)


@register_model("convnext_v2")
class ConvNeXtV2(
    Transformer, name="ConvNextV2Model", num_stages=2, hidden_sizes=[48, 96], depths=[2, 1]
):
    inputs = image(64)


def mixer(width: int) -> tuple[nn.Module, nn.Module]:
    """FastViT's, after its branches became one: 7x7 by channel, then two of 1x1."""
    own, wide = (nn.Conv2d(width, width, n, padding=n // 2, groups=width) for n in (3, 7))
    ends = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(3 * width, width, 1)
    return Plus(own), Plus(wide, ends[0], nn.GELU(), ends[1])


@register_model("fastvit")
class FastVit(Network):
    def get_eager_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 48, 3, 2, 1), nn.GELU(), nn.Conv2d(48, 48, 3, 2, 1, groups=48), nn.GELU(),
            *mixer(48), nn.Conv2d(48, 96, 7, 2, 3, groups=48), *mixer(96),
        )  # fmt: skip


class UNet(nn.Module):
    """``block`` makes a step of the network, for numbers of channels."""

    def __init__(self, block: Callable[..., nn.Module], *widths: int, classes: int) -> None:
        super().__init__()
        pairs = [*itertools.pairwise(widths)]
        self.down = nn.ModuleList(block(*pair) for pair in pairs)
        self.widen = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs[:0:-1])
        self.up = nn.ModuleList(block(b, a) for a, b in pairs[:0:-1])
        self.last = nn.Conv2d(widths[1], classes, 1)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        kept = []
        for step, block in enumerate(self.down):
            value = block(value if not step else functional.max_pool2d(value, 2))
            kept.append(value)
        for widen, block, skipped in zip(self.widen, self.up, kept[-2::-1], strict=True):
            value = block(torch.cat([skipped, widen(value)], dim=1))
        return self.last(value)


@register_model("scan_unet")
class Scan(Network):
    """For scans of one channel, as medical ones are."""

    network = staticmethod(lambda: UNet(grouped, 1, 16, 32, classes=2))
    inputs = numbers(1, 1, 32, 32)


def reflected(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, size, stride)
    norm = nn.InstanceNorm2d(outputs, affine=True)
    return nn.Sequential(nn.ReflectionPad2d(size // 2), layer, norm)


@register_model("style_transfer")
class StyleTransfer(Network):
    inputs = image(32)

    def get_eager_model(self) -> nn.Module:
        return nn.Sequential(
            reflected(3, 16, 9), nn.ReLU(), reflected(16, 32, 3, 2), nn.ReLU(),
            reflected(32, 32, 3), nn.ReLU(), nn.Upsample(scale_factor=2, mode="nearest"),
            reflected(32, 16, 3), nn.ReLU(), reflected(16, 3, 9),
        )  # fmt: skip


@register_model("yolo_head")
class BoxHead(Own):
    """YOLO's head: each side of a box is the mean of a distribution over 16 distances."""

    inputs = numbers(1, 32, 16, 16)

    def __init__(self, classes: int = 20, bins: int = 16) -> None:
        super().__init__()
        self.bins = bins
        self.boxes = nn.Sequential(conv(32, 64), nn.Conv2d(64, 4 * bins, 1))
        self.classes = nn.Sequential(conv(32, 32), nn.Conv2d(32, classes, 1))
        self.register_buffer("distances", torch.arange(bins, dtype=torch.float32))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        boxes = self.boxes(image).flatten(2).unflatten(1, (4, self.bins))
        sides = (torch.softmax(boxes, dim=2) * self.distances[:, None]).sum(2)
        near, far = sides.chunk(2, dim=1)
        centre = torch.cat([(near + far) * 0.5, far - near], dim=1)
        return torch.cat([centre, self.classes(image).flatten(2).sigmoid()], dim=1)


@register_model("hrnet")
class HighResolution(Timm, name="hrnet_w18_small", num_classes=17):
    """Several sizes side by side, and each gets the others'."""


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


@register_model("denoiser")
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
        coarse = coarse + self.attention(words).transpose(1, 2).unflatten(2, (8, 8))
        larger = functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        return self.head(self.last(fine + self.up(larger), sines))


@register_model("depth_anything")
class Depth(
    Transformer, name="DepthAnythingForDepthEstimation", neck_hidden_sizes=[32, 32],
    reassemble_factors=[2, 1], fusion_hidden_size=32, head_hidden_size=16, patch_size=8,
    reassemble_hidden_size=64, backbone_config={
        "model_type": "dinov2", **_TEXT, "mlp_ratio": 4, "image_size": 64, "patch_size": 8,
        "out_indices": [1, 2], "reshape_hidden_states": False,
    },
):  # fmt: skip
    """A transformer's words as images of two sizes, then joined."""

    inputs = image(64)


@register_model("efficientnet_lite")
class EfficientNetLite(Timm, name="efficientnet_lite0"):
    """Neither SiLU nor squeezing."""


@register_model("swin", variants=("fp32", "fp16"))
class SwinModel(
    Vision, name="SwinTransformer", patch_size=[4, 4], embed_dim=32, depths=[2, 2],
    num_heads=[2, 4], window_size=[4, 4], num_classes=10,
):  # fmt: skip
    """Attention in windows that move."""


@register_model("resnext", variants=("fp32", "fp16"))
class ResnextModel(
    Vision, name="ResNet", block=VISION.resnet.Bottleneck, layers=[1, 1, 1, 1], num_classes=10,
    groups=32, width_per_group=4,
):  # fmt: skip
    inputs = image(32)


@register_model("regnet", variants=("fp32", "fp16"))
class RegnetModel(
    Vision, name="RegNet", num_classes=10,
    block_params=VISION.regnet.BlockParams.from_init_params(4, 16, 40.0, 2.2, 16, se_ratio=0.25),
):  # fmt: skip
    inputs = image(32)


@register_model("deeplab", variants=("fp32", "fp16"))
class DeeplabModel(
    Segmenter, name="segmentation.deeplabv3_mobilenet_v3_large", weights_backbone=None,
    num_classes=5,
):  # fmt: skip
    """Convolutions whose weights stand apart."""


@register_model("ssdlite", variants=("fp32", "fp16"))
class SsdliteModel(
    Vision, name="detection.ssdlite320_mobilenet_v3_large", weights_backbone=None, num_classes=5
):
    """Its network alone: what follows chooses boxes by their values."""

    @staticmethod
    def ask(inner: Any, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = inner.head(list(inner.backbone(value).values()))
        return found["bbox_regression"], found["cls_logits"]


@register_model("fcos", variants=("fp32", "fp16"))
class FcosModel(Vision, name="detection.fcos_resnet50_fpn", weights_backbone=None, num_classes=5):
    """As a whole, so it chooses boxes by their values: a known refusal."""

    ask = staticmethod(lambda inner, value: inner([value[0]])[0]["boxes"])


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


@register_model("unet", variants=("fp32", "fp16"))
class UnetModel(Network):
    """Each step has two convolutions."""

    network = staticmethod(lambda: UNet(twice, 3, 16, 32, 64, classes=4))
    inputs = image(32)


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


class FewWords(Transformer):
    inputs = words(16, FEW_WORDS)


@register_model("distilbert", variants=("fp32", "fp16"))
class DistilbertModel(
    FewWords, name="DistilBertModel", dim=64, hidden_dim=128, n_layers=2, n_heads=4,
    vocab_size=FEW_WORDS, max_position_embeddings=64,
):  # fmt: skip
    """BERT of half the depth."""


@register_model("llama", variants=("fp32", "fp16"))
class LlamaModel(FewWords, name="LlamaForCausalLM", **_DECODER): ...


@register_model("mistral", variants=("fp32", "fp16"))
class MistralModel(FewWords, name="MistralForCausalLM", **_DECODER, sliding_window=8): ...


@register_model("gemma", variants=("fp32", "fp16"))
class GemmaModel(FewWords, name="GemmaForCausalLM", **_DECODER, head_dim=16): ...


@register_model("mixtral", variants=("fp32", "fp16"))
class MixtralModel(
    FewWords, name="MixtralForCausalLM", **_DECODER, num_local_experts=4, num_experts_per_tok=2
): ...


@register_model("t5", variants=("fp32", "fp16"))
class T5Model(
    FewWords, name="T5ForConditionalGeneration", d_model=64, d_kv=16, d_ff=128, num_layers=2,
    num_heads=4, vocab_size=FEW_WORDS, use_cache=False,
):  # fmt: skip
    """Encoder and decoder, which gets the same words."""

    @staticmethod
    def ask(inner: Any, value: torch.Tensor) -> Any:
        return inner(input_ids=value, decoder_input_ids=value, return_dict=False)[0]


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


@register_model("dlrm", variants=("fp32", "fp16"))
class DlrmModel(Own):
    inputs = staticmethod(lambda: (torch.randn(8, 13), torch.randint(0, 50, (8, 6))))

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

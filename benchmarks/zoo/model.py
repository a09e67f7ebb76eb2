"""Twelve architectures that people deploy, in small configurations with random weights.

They are written as their libraries have them, so advice meets what users meet. Sizes are small
because an emulator is slow. Operators and their number per layer are those of the large ones.
"""

from __future__ import annotations

import torch
from torch import nn

from pytest_sme2 import import_torchvision, register_model

VARIANTS = ("fp32", "fp16", "int8")
TEXT_VARIANTS = ("fp32", "fp16", "int8", "int8_dynamic")
WORDS = 32
VOCABULARY = 1000


class Image:
    """One image."""

    size = 64

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, self.size, self.size),)


class Words:
    """One sequence of words."""

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randint(0, VOCABULARY, (1, WORDS)),)


class Steps:
    """One sequence of vectors."""

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 8, 64),)


class First(nn.Module):
    """The first output of a Hugging Face model: the others are caches and hidden states."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.network(value, return_dict=False)[0]


@register_model("efficientnet", variants=VARIANTS)
class EfficientNet(Image):
    def get_eager_model(self) -> nn.Module:
        import_torchvision()
        from torchvision.models.efficientnet import EfficientNet as Network
        from torchvision.models.efficientnet import MBConvConfig

        # As in B0, with one block where it has up to four.
        blocks = [
            MBConvConfig(1, 3, 1, 32, 16, 1),
            MBConvConfig(6, 3, 2, 16, 24, 1),
            MBConvConfig(6, 5, 2, 24, 40, 1),
            MBConvConfig(6, 3, 2, 40, 80, 1),
            MBConvConfig(6, 5, 1, 80, 112, 1),
        ]
        return Network(blocks, dropout=0.2)


@register_model("convnext", variants=VARIANTS)
class ConvNeXt(Image):
    def get_eager_model(self) -> nn.Module:
        import_torchvision()
        from torchvision.models.convnext import CNBlockConfig
        from torchvision.models.convnext import ConvNeXt as Network

        # As in tiny, with one block where it has three or nine.
        blocks = [
            CNBlockConfig(96, 192, 1),
            CNBlockConfig(192, 384, 1),
            CNBlockConfig(384, 768, 1),
            CNBlockConfig(768, None, 1),
        ]
        return Network(blocks)


@register_model("vit", variants=TEXT_VARIANTS)
class VisionTransformer(Image):
    def get_eager_model(self) -> nn.Module:
        from transformers import ViTConfig, ViTModel

        config = ViTConfig(
            hidden_size=192, num_hidden_layers=2, num_attention_heads=3, intermediate_size=768,
            image_size=self.size,
        )  # fmt: skip
        return First(ViTModel(config, add_pooling_layer=False))


@register_model("whisper_encoder", variants=TEXT_VARIANTS)
class WhisperSpeech:
    def get_eager_model(self) -> nn.Module:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        config = WhisperConfig(
            d_model=128, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=512,
            max_source_positions=50,
        )  # fmt: skip
        return First(WhisperEncoder(config))

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 80, 100),)


@register_model("gpt2", variants=(*TEXT_VARIANTS, "int4"))
class Gpt2(Words):
    def get_eager_model(self) -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            n_embd=128, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=64, use_cache=False
        )
        return First(GPT2LMHeadModel(config))


@register_model("qwen2", variants=(*TEXT_VARIANTS, "int4"))
class Qwen2(Words):
    def get_eager_model(self) -> nn.Module:
        from transformers import Qwen2Config, Qwen2ForCausalLM

        config = Qwen2Config(
            hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=64,
            use_cache=False,
        )  # fmt: skip
        return First(Qwen2ForCausalLM(config))


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(128, 10)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        answers, _ = self.layer(steps)
        return self.head(answers[:, -1])


@register_model("lstm", variants=VARIANTS)
class Lstm(Steps):
    def get_eager_model(self) -> nn.Module:
        return Recurrent(nn.LSTM(64, 128, batch_first=True))


@register_model("gru", variants=VARIANTS)
class Gru(Steps):
    def get_eager_model(self) -> nn.Module:
        return Recurrent(nn.GRU(64, 128, batch_first=True))


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


class Detector(nn.Module):
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


@register_model("detector", variants=VARIANTS)
class Detection(Image):
    def get_eager_model(self) -> nn.Module:
        return Detector()


@register_model("bert", variants=(*TEXT_VARIANTS, "int4"))
class Bert(Words):
    def get_eager_model(self) -> nn.Module:
        from transformers import BertConfig, BertModel

        config = BertConfig(
            hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512,
            vocab_size=VOCABULARY,
        )  # fmt: skip
        return First(BertModel(config, add_pooling_layer=False))


@register_model("mobilenet_v4", variants=VARIANTS)
class MobileNetV4(Image):
    def get_eager_model(self) -> nn.Module:
        import_torchvision()
        import timm

        return timm.create_model(
            "mobilenetv4_conv_small_050", pretrained=False, num_classes=VOCABULARY
        )


class Masks(nn.Module):
    """The masks alone of a segmentation network, which answers with a dictionary."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.network(image)["out"]


@register_model("lraspp", variants=VARIANTS)
class Segmentation(Image):
    """LR-ASPP on a MobileNetV3, the small network of torchvision for segmentation."""

    def get_eager_model(self) -> nn.Module:
        import_torchvision()
        from torchvision.models.segmentation import lraspp_mobilenet_v3_large

        network = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21)
        return Masks(network)

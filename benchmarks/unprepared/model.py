"""Architectures as their libraries have them, which nothing here was prepared for. Random weights.

Sizes are small because an emulator is slow. Some cannot be exported: how that is said counts, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pytest_sme2 import import_torchvision, register_model

VOCABULARY = 500
WORDS = 16
# What many language models have in common.
_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "max_position_embeddings": 64, "use_cache": False}
_SOUND = {
    **_TEXT,
    "conv_dim": (32, 32, 32),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
}
VARIANTS = ("fp32", "fp16")


def image(size: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(1, 3, size, size),)


def words() -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, VOCABULARY, (1, WORDS)),)


def sound() -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 2000),)


class Network:
    """Inputs are those of the class."""

    inputs: Callable[[], tuple[torch.Tensor, ...]]

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return type(self).inputs()


class ByName(Network):
    """Made by a library that knows its name."""

    name: str
    options: dict[str, Any]

    def __init_subclass__(cls, name: str = "", **options: Any) -> None:
        cls.name, cls.options = name, options


class Asked(nn.Module):
    """A network that a function of its own asks, and that answers with tensors alone."""

    def __init__(self, inner: nn.Module, ask: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.ask = inner, ask

    def forward(self, value: torch.Tensor) -> Any:
        return self.ask(self.inner, value)


def _vision() -> Any:
    import_torchvision()
    from torchvision import models

    return models


class Timm(ByName):
    """A network of the library timm."""

    def get_eager_model(self) -> nn.Module:
        import_torchvision()
        import timm

        return timm.create_model(self.name, pretrained=False, num_classes=10, **self.options)


class Transformer(ByName):
    """A model of Hugging Face's library; the options are those of its configuration."""

    def get_eager_model(self) -> nn.Module:
        import transformers

        kind = getattr(transformers, self.name)
        made = kind(kind.config_class(**self.options))
        # The others are caches and hidden states.
        return Asked(made, lambda inner, value: inner(value, return_dict=False)[0])


@register_model("swin", variants=VARIANTS)
class SwinModel(Network):
    inputs = staticmethod(image(64))

    def get_eager_model(self) -> nn.Module:
        _vision()
        from torchvision.models.swin_transformer import SwinTransformer

        return SwinTransformer(
            patch_size=[4, 4],
            embed_dim=32,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=[4, 4],
            num_classes=10,
        )


@register_model("resnext", variants=VARIANTS)
class ResnextModel(Network):
    inputs = staticmethod(image(32))

    def get_eager_model(self) -> nn.Module:
        from torchvision.models.resnet import Bottleneck

        return _vision().ResNet(
            Bottleneck, [1, 1, 1, 1], num_classes=10, groups=32, width_per_group=4
        )


@register_model("regnet", variants=VARIANTS)
class RegnetModel(Network):
    inputs = staticmethod(image(32))

    def get_eager_model(self) -> nn.Module:
        _vision()
        from torchvision.models.regnet import BlockParams, RegNet

        parameters = BlockParams.from_init_params(4, 16, 40.0, 2.2, 16, se_ratio=0.25)
        return RegNet(parameters, num_classes=10)


@register_model("deeplab", variants=VARIANTS)
class DeeplabModel(Network):
    inputs = staticmethod(image(64))

    def get_eager_model(self) -> nn.Module:
        made = _vision().segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        )
        return Asked(made, lambda inner, value: inner(value)["out"])


@register_model("ssdlite", variants=VARIANTS)
class SsdliteModel(Network):
    """Its network alone: what follows chooses boxes by their values."""

    inputs = staticmethod(image(64))

    def get_eager_model(self) -> nn.Module:
        made = _vision().detection.ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        )

        def heads(inner: Any, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = inner.head(list(inner.backbone(value).values()))
            return found["bbox_regression"], found["cls_logits"]

        return Asked(made, heads)


@register_model("fcos", variants=VARIANTS)
class FcosModel(Network):
    """As a whole, so it chooses boxes by their values: a known refusal."""

    inputs = staticmethod(image(64))

    def get_eager_model(self) -> nn.Module:
        made = _vision().detection.fcos_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=5
        )
        return Asked(made, lambda inner, value: inner([value[0]])[0]["boxes"])


@register_model("mobilevit_v2", variants=VARIANTS)
class MobilevitV2Model(Timm, name="mobilevitv2_050"):
    inputs = staticmethod(image(64))


@register_model("efficientformer", variants=VARIANTS)
class EfficientformerModel(
    Timm, name="efficientformer_l1", depths=(1, 1, 1, 2), embed_dims=(16, 32, 48, 64), num_vit=1
):
    inputs = staticmethod(image(224))


@register_model("efficientvit", variants=VARIANTS)
class EfficientvitModel(Timm, name="efficientvit_b0"):
    inputs = staticmethod(image(64))


@register_model("dpt", variants=VARIANTS)
class DptModel(
    Transformer,
    name="DPTForDepthEstimation",
    **{name: value for name, value in _TEXT.items() if name != "vocab_size"}
    | {"num_hidden_layers": 4},
    image_size=32,
    patch_size=8,
    backbone_out_indices=[0, 1, 2, 3],
    neck_hidden_sizes=[16, 32, 48, 64],
    fusion_hidden_size=32,
    reassemble_factors=[4, 2, 1, 0.5],
):
    inputs = staticmethod(image(32))


@register_model("unet", variants=VARIANTS)
class UnetModel(Network):
    inputs = staticmethod(image(32))

    def get_eager_model(self) -> nn.Module:
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
                    value = block(value if not step else nn.functional.max_pool2d(value, 2))
                    kept.append(value)
                for widen, block, skipped in zip(self.widen, self.up, kept[-2::-1], strict=True):
                    value = block(torch.cat([widen(value), skipped], dim=1))
                return self.last(value)

        return UNet()


@register_model("wav2vec2", variants=VARIANTS)
class Wav2vec2Model(
    Transformer, name="Wav2Vec2Model", **_SOUND, num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
):  # fmt: skip
    inputs = staticmethod(sound)


@register_model("conformer", variants=VARIANTS)
class ConformerModel(
    Transformer, name="Wav2Vec2ConformerModel", **_SOUND, conv_depthwise_kernel_size=7,
    position_embeddings_type="rotary",
):  # fmt: skip
    inputs = staticmethod(sound)


@register_model("speech", variants=VARIANTS)
class SpeechModel(Network):
    """A small net for keywords, of one-dimensional convolutions."""

    inputs = staticmethod(lambda: (torch.randn(1, 40, 100),))

    def get_eager_model(self) -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in ((40, 64), (64, 64), (64, 64), (64, 64)):
            layers += [nn.Conv1d(before, after, 5, padding=2), nn.BatchNorm1d(after), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 12))


@register_model("distilbert", variants=VARIANTS)
class DistilbertModel(
    Transformer, name="DistilBertModel", dim=64, hidden_dim=128, n_layers=2, n_heads=4,
    vocab_size=VOCABULARY, max_position_embeddings=64,
):  # fmt: skip
    inputs = staticmethod(words)


@register_model("llama", variants=VARIANTS)
class LlamaModel(Transformer, name="LlamaForCausalLM", **_DECODER):
    inputs = staticmethod(words)


@register_model("mistral", variants=VARIANTS)
class MistralModel(Transformer, name="MistralForCausalLM", **_DECODER, sliding_window=8):
    inputs = staticmethod(words)


@register_model("gemma", variants=VARIANTS)
class GemmaModel(Transformer, name="GemmaForCausalLM", **_DECODER, head_dim=16):
    inputs = staticmethod(words)


@register_model("mixtral", variants=VARIANTS)
class MixtralModel(
    Transformer, name="MixtralForCausalLM", **_DECODER, num_local_experts=4, num_experts_per_tok=2
):
    inputs = staticmethod(words)


@register_model("t5", variants=VARIANTS)
class T5Model(Network):
    inputs = staticmethod(words)

    def get_eager_model(self) -> nn.Module:
        from transformers import T5Config, T5ForConditionalGeneration

        config = T5Config(
            d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=VOCABULARY,
            use_cache=False,
        )  # fmt: skip

        def both(inner: Any, value: torch.Tensor) -> Any:
            """Encoder and decoder, which gets the same words."""
            return inner(input_ids=value, decoder_input_ids=value, return_dict=False)[0]

        return Asked(T5ForConditionalGeneration(config), both)


@register_model("moe", variants=VARIANTS)
class MoeModel(Network):
    """Experts that all compute, weighted by a gate: nothing depends on values."""

    inputs = staticmethod(lambda: (torch.randn(1, 16, 64),))

    def get_eager_model(self) -> nn.Module:

        class Experts(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.gate = nn.Linear(64, 4)
                self.experts = nn.ModuleList(
                    nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
                    for _ in range(4)
                )

            def forward(self, value: torch.Tensor) -> torch.Tensor:
                weights = torch.softmax(self.gate(value), dim=-1)
                answers = torch.stack([expert(value) for expert in self.experts], dim=-1)
                return (answers * weights.unsqueeze(-2)).sum(-1)

        return nn.Sequential(Experts(), nn.LayerNorm(64), Experts())


@register_model("dlrm", variants=VARIANTS)
class DlrmModel(Network):
    inputs = staticmethod(lambda: (torch.randn(8, 13), torch.randint(0, 50, (8, 6))))

    def get_eager_model(self) -> nn.Module:
        class Dlrm(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.tables = nn.ModuleList(nn.Embedding(50, 32) for _ in range(6))
                self.bottom = nn.Sequential(
                    nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()
                )
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

        return Dlrm()


@register_model("video", variants=VARIANTS)
class VideoModel(Network):
    """A net over time: XNNPACK has no convolution of three dimensions. A known refusal."""

    inputs = staticmethod(lambda: (torch.randn(1, 3, 4, 16, 16),))

    def get_eager_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv3d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool3d(2),
            nn.Flatten(),
            nn.Linear(1024, 5),
        )

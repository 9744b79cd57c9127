"""Two models of torchvision as examples of foreign code: `vit` and `resnet`, on random images."""

import torch
from torch import nn
from torch.nn import functional


def vit(want):
    from torchvision.models import VisionTransformer

    size = want.option("size", 224)
    width = want.option("width", 768)
    model = VisionTransformer(
        image_size=size,
        patch_size=want.option("patch", 16),
        num_layers=want.option("layers", 12),
        num_heads=width // 64,
        hidden_dim=width,
        mlp_dim=4 * width,
    )
    return model, *images(want, size)


def resnet(want):
    from torchvision.models import resnet50

    return resnet50(), *images(want, want.option("size", 224))


def images(want, size) -> tuple[torch.Tensor, nn.Module]:
    labels = torch.randint(1000, (want.batch,))
    return torch.randn(want.batch, 3, size, size), lambda logits: functional.cross_entropy(logits, labels)

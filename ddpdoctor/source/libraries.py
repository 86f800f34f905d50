"""Libraries that a project imports and that set no epoch, choose no device and guard nothing for it."""

from __future__ import annotations

import re
import sys

KNOWN = frozenset(
    "torch torchvision torchaudio torchtext numpy scipy PIL cv2 tqdm yaml pandas matplotlib sklearn skimage"
    " tensorboardX tensorboard wandb mlflow einops timm termcolor tabulate requests h5py lmdb nltk sentencepiece"
    " datasets tokenizers torchmetrics torchinfo seaborn psutil click omegaconf hydra loguru rich pycocotools"
    " prettytable albumentations huggingface_hub safetensors tiktoken regex six dotenv visdom torchsummary thop"
    " imageio tifffile librosa soundfile jieba networkx plotly pynvml setuptools packaging typing_extensions ddpdoctor"
    " warmup_scheduler lpips ftfy apex prefetch_generator madgrad evaluate sacrebleu fire absl easydict addict gdown"
    " onnx onnxruntime onnxsim panopticapi fsspec decord peft gensim dill yacs accimage boto3 nlp pkg_resources"
    " IPython comet_ml clearml neptune aim swanlab blobfile ruamel ruamel_yaml pycocoevalcap yapf ipdb bitsandbytes"
    " braceexpand tree_sitter zmq unidecode phonemizer xformers flash_attn triton numba jsonlines rouge_score gym"
    " shapely trimesh faiss spacy torchviz typer toml tomli pydantic dacite attr attrs joblib zarr xarray netCDF4"
    " ml_collections mpi4py configargparse kornia liger_kernel tensorflow openvino lxml flask av diffusers cupy Cython"
    " natsort pytorch3d GPUtil mpl_toolkits iopath pyarrow polars cog gradio filelock sympy portalocker music21"
    " nibabel lvis torch_fidelity cleanfid pytorch_fid torchprofile ninja tensorrt cPickle Queue pickle5"
    " batchgenerators batchgeneratorsv2 dynamic_network_architectures acvl_utils hiddenlayer pointnet2_ops chamfer emd"
    " emd_cuda knn_cuda augly threadpoolctl retry tensorboard_logger clip open_clip ema_pytorch einx"
    " vector_quantize_pytorch rotary_embedding_torch x_transformers lion_pytorch prodigyopt adan_pytorch torcheval"
    " torch_scatter torch_sparse torch_cluster torch_spline_conv spconv MinkowskiEngine mamba_ssm causal_conv1d pytest"
    " imgaug umap hdbscan optuna torch_ema ase rdkit openbabel vit_pytorch efficientnet_pytorch"
    " segmentation_models_pytorch torch_optimizer pytorch_metric_learning pytorch_msssim torchview torchstat ptflops"
    " git resampy pesq pystoi ffmpeg moviepy pydub simplejson simple_parsing jsonargparse gin munch setproctitle"
    " logzero fastprogress fitlog prody elasticdeform anndata scanpy dlib open3d pyclipper dask geoopt dominate ogb"
    " pathspec streamlit cut_cross_entropy google_drive_downloader pyiqa torch_geometric pydicom SimpleITK Bio biotite"
    " esm dateutil pytz bs4 pypinyin g2p_en pyworld parselmouth torchcrepe kaldiio audioread konlpy sacremoses"
    " subword_nmt ctcdecode warpctc_pytorch skvideo pafy turbojpeg plyfile ijson jaxtyping local_attention"
    " prometheus_client botocore boto minio redis openai fastapi uvicorn chromadb yfinance hyperopt hypertune deap"
    " py3nvml dllogger memory_profiler cloudpickle parameterized pytablewriter terminaltables ptvsd tap rasterio"
    " geopandas pyproj wget pywt smplx chumpy roma".split()
)
DATA_SETS = "torchvision.datasets"
OF_DATA_SETS = frozenset(
    "CIFAR10 CIFAR100 MNIST FashionMNIST KMNIST EMNIST QMNIST SVHN STL10 USPS CelebA Caltech101 Caltech256 Food101"
    " DTD GTSRB Places365 Flowers102 OxfordIIITPet StanfordCars FGVCAircraft VOCDetection VOCSegmentation".split()
)
"""What a file has of torchvision by ``from torchvision.datasets import *``: those that people use."""

TRAINER = re.compile(
    r"^[ \t]*from[ \t]+transformers[\w.]*[ \t]+import[ \t]*(?:\([^)]*?|[^\n(]*?)"
    r"(?:Trainer|TrainingArguments|Callback|\*)"
    r"|\btransformers\.(?:\w+\.)*\w*(?:Trainer|TrainingArguments)|\b(?:trl|Accelerator)\b"
    r"|^[ \t]*import[ \t]+transformers[ \t]+as\b",
    re.MULTILINE,
)
"""Words of what transformers has besides models: it goes through the loaders itself."""
NOT_OURS = KNOWN | sys.stdlib_module_names
"""Libraries that set no epoch, choose no device and guard nothing for a script."""

NEVER_OURS = frozenset(
    "__future__ argparse collections copy dataclasses functools itertools json math numpy os pathlib random re shutil"
    " sys time torch torchvision typing warnings".split()
)
"""Those that no project has a module of the same name beside, so that nobody looks for one: half of all imports."""
ACCELERATES = re.compile(r"accelerator|PartialState|\.prepare\b|notebook_launcher|ProcessState", re.IGNORECASE)
"""What a file says that has Accelerate take over its training; its helpers for large models and seeds do not."""
MONAI_TRAINS = re.compile(
    r"\bmonai[. ]+(?:import )?(?:engines|handlers|apps|fl|bundle)\b|partition_dataset|ThreadDataLoader"
)
"""What a file says that has MONAI train, or share its data out."""

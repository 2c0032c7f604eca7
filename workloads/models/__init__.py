"""Built-in models. Their shapes are available without importing torch.

builtins.py    the built-in workloads; tensors.py: what describes a model that is not built
learner.py     a module with its data and its goal, built-in or a user's
small_cnn.py, mnist_gru.py, residual.py, gpt_stdlib.py    models that train
resnet.py, gpt.py    tensors alone, for timing
"""

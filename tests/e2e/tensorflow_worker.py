# SPDX-License-Identifier: Apache-2.0
"""A worker of TensorFlow: a linear regression by MultiWorkerMirroredStrategy, which finds the
others by TF_CONFIG."""
import json
import os

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else of TensorFlow
config = json.loads(os.environ["TF_CONFIG"])
rank, workers = config["task"]["index"], config["cluster"]["worker"]
assert strategy.extended._in_multi_worker_mode()  # pylint: disable=protected-access

rng = np.random.default_rng(1)
x = rng.standard_normal((64, 4)).astype("float32")
y = x @ np.array([[1.0], [2.0], [3.0], [4.0]], "float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16).repeat(4)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(4,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
history = model.fit(data.with_options(options), epochs=4, verbose=0)
assert history.history["loss"][-1] < history.history["loss"][0], history.history
weights = " ".join(f"{w:.6f}" for w in model.get_weights()[0].ravel())
print(f"worker {rank} of {len(workers)}: replicas {strategy.num_replicas_in_sync}, "
      f"weights {weights}", flush=True)

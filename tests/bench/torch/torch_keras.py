# SPDX-License-Identifier: Apache-2.0
"""Keras 3 on PyTorch, the five kinds of workload of the Arax paper's table 7: torch_keras.py KIND. Runs in PyTorch's environment.

Prints {"seconds": of training, without the first epoch, "values": the loss of each epoch}. All data is made here, from a seed.
"""
import json
import os
import sys
import time

os.environ["KERAS_BACKEND"] = "torch"
import keras  # pylint: disable=wrong-import-position
import numpy  # pylint: disable=wrong-import-position

EPOCHS = 5
layers, ops = keras.layers, keras.ops


def pictures(count, size, channels, classes):
    chance = numpy.random.default_rng(3)
    labels = chance.integers(0, classes, count)
    kinds = chance.normal(size=(classes, size, size, channels))
    return (kinds[labels] * 0.3 + chance.normal(size=(count, size, size, channels))).astype("float32"), labels


def classifier(model, x, y):
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, x, y


def kind_mnist():
    """Digits: two convolutions."""
    return classifier(keras.Sequential([
        layers.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(), layers.Flatten(), layers.Dense(10)]), *pictures(4096, 28, 1, 10))


def kind_vision():
    """Computer vision: separable convolutions with ways around them."""
    first = layers.Input((48, 48, 3))
    x = layers.Conv2D(32, 3, strides=2, padding="same")(first)
    for width in (64, 128):
        around = layers.Conv2D(width, 1, strides=2, padding="same")(x)
        for _ in range(2):
            x = layers.BatchNormalization()(layers.SeparableConv2D(width, 3, padding="same")(layers.Activation("relu")(x)))
        x = layers.add([layers.MaxPooling2D(3, strides=2, padding="same")(x), around])
    x = layers.Dense(5)(layers.GlobalAveragePooling2D()(x))
    return classifier(keras.Model(first, x), *pictures(2048, 48, 3, 5))


class Draw(layers.Layer):
    """A point near what the encoder says, and how far from the middle that is."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(5)

    def call(self, inputs):
        mean, spread = inputs
        self.add_loss(-0.001 * ops.mean(1 + spread - ops.square(mean) - ops.exp(spread)))
        return mean + ops.exp(spread / 2) * keras.random.normal(ops.shape(mean), seed=self.seeds)


def kind_generative():
    """Generative: a variational autoencoder."""
    first = layers.Input((28, 28, 1))
    x = layers.Flatten()(layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(first))
    x = layers.Dense(16, activation="relu")(x)
    z = Draw()([layers.Dense(4)(x), layers.Dense(4)(x)])
    y = layers.Reshape((14, 14, 16))(layers.Dense(14 * 14 * 16, activation="relu")(z))
    y = layers.Conv2DTranspose(1, 3, strides=2, padding="same")(y)
    model = keras.Model(first, y)
    model.compile(optimizer="adam", loss="mse")
    x, _ = pictures(4096, 28, 1, 10)
    return model, x, x


class Graph(layers.Layer):
    """Each node takes the mean of what its neighbours have."""

    def __init__(self, width, edges):
        super().__init__()
        self.dense, self.edges = layers.Dense(width, activation="relu"), edges

    def call(self, inputs):
        return ops.matmul(ops.convert_to_tensor(self.edges), self.dense(inputs))


def kind_graph():
    """A graph network: kinds of nodes from their words and their neighbours; a sample is one dropout of the same graph."""
    chance = numpy.random.default_rng(4)
    nodes, words, kinds = 1024, 128, 7
    labels = chance.integers(0, kinds, nodes)
    edges = ((labels[:, None] == labels[None, :]) * 0.02 > chance.random((nodes, nodes))) | numpy.eye(nodes, dtype=bool)
    edges = (edges / edges.sum(1, keepdims=True)).astype("float32")
    x = (chance.normal(size=(kinds, words))[labels] * 0.3 + chance.normal(size=(nodes, words))).astype("float32")
    model = keras.Sequential([layers.Input((nodes, words)), layers.Dropout(0.2, seed=9), Graph(64, edges), Graph(32, edges), layers.Dense(kinds)])
    return classifier(model, numpy.repeat(x[None], 64, 0), numpy.repeat(labels[None], 64, 0))


def kind_recommender():
    """Recommendations: embeddings of people and things, and how well they fit."""
    chance = numpy.random.default_rng(6)
    people, things, count = 2000, 3000, 100000
    who, what = chance.integers(0, people, count), chance.integers(0, things, count)
    tastes, natures = chance.normal(size=(people, 8)), chance.normal(size=(things, 8))
    rating = 1 / (1 + numpy.exp(-(tastes[who] * natures[what]).sum(1))).astype("float32")
    left, right = layers.Input((), dtype="int32"), layers.Input((), dtype="int32")
    fit = layers.Dot(1)([layers.Embedding(people, 50)(left), layers.Embedding(things, 50)(right)])
    bias = layers.add([layers.Flatten()(layers.Embedding(people, 1)(left)), layers.Flatten()(layers.Embedding(things, 1)(right))])
    model = keras.Model([left, right], layers.Activation("sigmoid")(layers.add([fit, bias])))
    model.compile(optimizer="adam", loss="mse")
    return model, [who.astype("int32"), what.astype("int32")], rating


KINDS = {name[5:]: function for name, function in list(globals().items()) if name.startswith("kind_")}
BATCH = {"graph": 4, "recommender": 512}


def main():
    if len(sys.argv) < 2:
        print("\n".join(KINDS))
        return
    name = sys.argv[1]
    keras.utils.set_random_seed(13)
    model, x, y = KINDS[name]()
    values, began = [], None
    for _ in range(EPOCHS):
        history = model.fit(x, y, batch_size=BATCH.get(name, 128), epochs=1, shuffle=False, verbose=0)
        values.append(float(history.history["loss"][-1]))
        began = began or time.perf_counter()
    print(json.dumps({"seconds": time.perf_counter() - began, "values": values}), flush=True)
    # What ends a library is not what is looked at here.
    if os.environ.get("GANTRY_TORCH_QUICK_END"):
        os._exit(0)


if __name__ == "__main__":
    main()

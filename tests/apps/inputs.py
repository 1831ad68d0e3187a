# SPDX-License-Identifier: Apache-2.0
"""Makes the input files of the programs: the same bytes at each call. Names are those that programs.py gives as inputs."""
import pathlib
import random
import struct


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def commands(path, lines):
    """What the B+ tree is told. It takes the whole file for a string: without the 0 it would go on with bytes that it never set."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join(lines).encode("ascii") + b"\n\0")


def graph(path, nodes, degree):
    """A graph for breadth-first search: node table, source, edge table."""
    rnd = random.Random(1)
    edges = nodes * degree
    rows = [str(nodes)] + [f"{node * degree} {degree}" for node in range(nodes)] + ["", "0", "", str(edges)]
    rows += [f"{int(rnd.random() * nodes)} 1" for _ in range(edges)]
    write_lines(path, rows)


def keys(path, number):
    """Keys of a B+ tree: how many, then each."""
    rnd = random.Random(2)
    found = list(range(1, number + 1))
    rnd.shuffle(found)
    write_lines(path, [str(number)] + [str(key) for key in found])


def floats(path, number, low, high):
    rnd = random.Random(3)
    write_lines(path, [f"{low + (high - low) * rnd.random():.6f}" for _ in range(number)])


def mesh(path, side):
    """A flat grid of @side x @side cells, each with four neighbours; the border meets the far field. Numbered from 1."""
    rnd = random.Random(4)
    rows = [str(side * side)]
    for y in range(side):
        for x in range(side):
            def cell(column, row):
                return row * side + column + 1 if 0 <= column < side and 0 <= row < side else -2
            faces = ((cell(x - 1, y), -1, 0), (cell(x + 1, y), 1, 0), (cell(x, y - 1), 0, -1), (cell(x, y + 1), 0, 1))
            words = [f"{1.0 + 0.1 * rnd.random():.6f}"]
            for neighbour, across, along in faces:
                words += [str(neighbour), f"{across:.1f}", f"{along:.1f}", "0.0"]
            rows.append(" ".join(words))
    write_lines(path, rows)


def raw_bytes(path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(5).randbytes(number))


def skewed_bytes(path, number):
    """Bytes of which few occur often, as a compressor likes them."""
    rnd = random.Random(6)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(int(rnd.expovariate(0.25)) & 0xff for _ in range(number)))


def grey_picture(path, rows, columns):
    """A picture as text (PGM P2) behind three lines of header."""
    rnd = random.Random(7)
    lines = ["P2", f"{columns} {rows}", "255"]
    for row in range(rows):
        lines.append(" ".join(str((row * 3 + column * 2 + rnd.randrange(40)) & 255) for column in range(columns)))
    write_lines(path, lines)


def places(path, number):
    """Records of 49 characters with a latitude at column 28 and a longitude at 33, and the list that names the file."""
    rnd = random.Random(8)
    rows = []
    for index in range(number):
        head = f"{1950 + index % 60:4d} {index % 12 + 1:2d} {index % 28 + 1:2d} {index % 4 * 6:2d} {index % 99:2d} NAME{index % 1000:04d}"
        rows.append(f"{head:28}{rnd.uniform(7, 64):5.1f}{rnd.uniform(10, 350):5.1f}{index % 150:5d}{index % 900:5d}"[:48])
    write_lines(path.parent / "places.db", rows)
    write_lines(path, ["places.db"])


def chunk(name, *parts):
    """A chunk of a RIFF file."""
    body = b"".join(parts)
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) & 1)


def video(path, rows, columns, frames):
    """An AVI file of grey pictures as they are, one byte a point: noise over a bright ring that moves."""
    rnd = random.Random(9)
    noise = rnd.randbytes(rows * columns)
    pictures = []
    for frame in range(frames):
        shade = [min(255, abs((x - 372 - frame) // 2) + 40) for x in range(columns)]
        rows_of = []
        for y in range(rows):
            lift = min(120, abs(y - 380 + frame) // 2)
            line = noise[y * columns:(y + 1) * columns]
            rows_of.append(bytes(min(255, (a + lift + (b >> 3)) & 0xff) for a, b in zip(shade, line)))
        pictures.append(chunk(b"00db", b"".join(rows_of)))
    size = rows * columns
    main = struct.pack("<14I", 40000, size * 25, 0, 0x10, frames, 0, 1, size, columns, rows, 0, 0, 0, 0)
    stream = struct.pack("<4s4s10I4H", b"vids", b"DIB ", 0, 0, 0, 1, 25, 0, frames, size, 0, 0, 0, 0, columns, rows)
    shape = struct.pack("<IiiHHIIiiII", 40, columns, rows, 1, 8, 0, size, 0, 0, 0, 0)
    header = chunk(b"LIST", b"hdrl", chunk(b"avih", main), chunk(b"LIST", b"strl", chunk(b"strh", stream), chunk(b"strf", shape)))
    places, at = [], 4
    for picture in pictures:
        places.append(struct.pack("<4s3I", b"00db", 0x10, at, size))
        at += len(picture)
    path.write_bytes(chunk(b"RIFF", b"AVI ", header, chunk(b"LIST", b"movi", *pictures), chunk(b"idx1", *places)))


MAKERS = {
    "graph.txt": lambda path: graph(path, 1 << 18, 6),
    "keys.txt": lambda path: keys(path, 200000),
    "command.txt": lambda path: commands(path, ["j 6000 3000", "k 10000"]),
    "temp_1024": lambda path: floats(path, 1 << 20, 320, 345),
    "power_1024": lambda path: floats(path, 1 << 20, 0.0, 0.01),
    "temp_256x8": lambda path: floats(path, 256 * 256 * 8, 320, 345),
    "power_256x8": lambda path: floats(path, 256 * 256 * 8, 0.0, 0.01),
    "mesh.txt": lambda path: mesh(path, 288),
    "rgb.raw": lambda path: raw_bytes(path, 1024 * 1024 * 3),
    "symbols.in": lambda path: skewed_bytes(path, 1 << 20),
    "image.pgm": lambda path: grey_picture(path, 502, 458),
    "heart.avi": lambda path: video(path, 656, 744, 12),
    "places.txt": lambda path: places(path, 200000),
}


def make(name, folder):
    """Makes input @name in @folder, once."""
    path = pathlib.Path(folder, name)
    if not path.exists():
        MAKERS[name](path)
    return path

"""Texts of a tree: those that editors write, what arrays they have, and whether they may be saved."""
import io
import re
from dataclasses import dataclass

import numpy as np
import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
HEAD = b"#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n"
DIRECTIVES = b"%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n"
NDARRAY = re.compile(r"tag:stsci\.edu:asdf/core/ndarray-\d")
TYPES = {"uint8": "u1", "int16": "i2", "int32": "i4", "float64": "f8"}


@dataclass(frozen=True)
class Array:
    """An array of a tree, in a block."""
    source: int
    dtype: str
    shape: tuple          # its first entry is None where the block says how long it is
    offset: int = 0
    strides: tuple = None

    def block(self, count):
        return self.source if self.source >= 0 else count + self.source

    def places(self, length):
        """Where each element begins in a block of that length, in C order; None if it does not lie in it."""
        size = np.dtype(self.dtype).itemsize
        shape = self.shape
        if shape[:1] == (None,):
            row = size * int(np.prod(shape[1:], dtype=int))
            shape = ((length - self.offset) // row, *shape[1:]) if length >= self.offset else (-1,)
        if min(shape, default=0) < 0:
            return None
        strides = self.strides or tuple(size * int(np.prod(shape[at + 1:], dtype=int)) for at in range(len(shape)))
        places = np.full((), self.offset, "i8")
        for count, stride in zip(shape, strides):
            places = places[..., None] + np.arange(count) * stride
        if places.size and not 0 <= places.min() <= places.max() <= length - size:
            return None
        return places

    def covers(self, length):
        """Whether it has all of a block of that length for its elements, one behind the other."""
        return self.offset == 0 and self.strides is None and self.places(length).size * np.dtype(self.dtype).itemsize == length

    def elements(self, data):
        """The elements in C order, as bytes."""
        places = self.places(len(data))
        size = np.dtype(self.dtype).itemsize
        raw = np.frombuffer(bytes(data), "u1")
        return raw[places.reshape(-1)[:, None] + np.arange(size)].tobytes()

    def header(self, data):
        """What NumPy writes in front of them."""
        out = io.BytesIO()
        np.save(out, np.frombuffer(self.elements(data), self.dtype).reshape(self.places(len(data)).shape))
        return out.getvalue()[:out.tell() - len(self.elements(data))]


def arrays_of(text, tag=NDARRAY):
    """The arrays of a tree with that tag whose data are in blocks: {path: Array}; raises what the YAML parser does."""
    root = yaml.compose(text, LOADER)
    found, seen = {}, set()

    def walk(node, path):
        if id(node) in seen:
            return
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode) and NDARRAY.match(node.tag):
            raise ValueError("an array that is neither a mapping nor a list")
        if isinstance(node, yaml.MappingNode) and tag.match(node.tag):
            if array := array_of({plain(key): value for key, value in node.value}):
                found["/".join(path)] = array
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                walk(value, [*path, plain(key)])
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                walk(value, [*path, str(index)])

    if root:
        walk(root, [])
    return found


def array_of(fields):
    if not {"source", "data"} & set(fields):
        raise ValueError("an array without elements")
    if "source" not in fields or not isinstance(fields["datatype"], yaml.ScalarNode):
        return None
    order = fields["byteorder"].value if "byteorder" in fields else None
    if order not in ("big", "little"):
        raise ValueError("neither big nor little")
    if not all(isinstance(fields[name], yaml.SequenceNode) for name in ("shape", "strides") if name in fields):
        raise ValueError("no list")
    shape = tuple(None if item.value == "*" else int(item.value) for item in fields["shape"].value)
    strides = tuple(int(item.value) for item in fields["strides"].value) if "strides" in fields else None
    offset = int(fields["offset"].value) if "offset" in fields else 0
    dtype = ("<" if order == "little" else ">") + TYPES[fields["datatype"].value]
    return Array(int(fields["source"].value), dtype, shape, offset, strides)


def read_npy(data):
    """Datatype, shape and elements of a whole NPY file; None if it is none."""
    try:
        array = np.load(io.BytesIO(data))
    except (EOFError, OSError, ValueError):
        return None
    return array.dtype, array.shape, array.tobytes()


def redeclared(text, path, array, dtype, shape):
    """The text in which an array has another datatype or shape: these words are replaced where they stand."""
    words = {}
    if dtype != np.dtype(array.dtype):
        words[b"datatype"] = dtype.name
        if dtype.itemsize > 1:
            words[b"byteorder"] = "big" if dtype.str[0] == ">" else "little"
    if shape != array.shape and (words or array.shape[:1] != (None,) or shape[1:] != array.shape[1:]):
        words[b"shape"] = str(list(shape))
    before, name, after = text.partition(path.rpartition("/")[2].encode() + b": !core/ndarray-")
    for word, value in words.items():
        after = re.sub(rb"\b(%s: )(\[.*?\]|\w+)" % word, rb"\g<1>" + value.encode(), after, count=1)
    return before + name + after


def problem(text, blocks):
    """Which array of a text does not lie in its block, if one does not."""
    for path, array in arrays_of(text).items():
        number = array.block(len(blocks))
        if not 0 <= number < len(blocks) or array.places(len(blocks[number].data)) is None:
            return path
    return None


def plain(node):
    """A node as a value that can be compared: of a mapping or sequence the values in it."""
    if isinstance(node, yaml.ScalarNode):
        return node.value
    return tuple(plain(part) for item in node.value for part in (item if isinstance(item, tuple) else (item,)))


def odd_key(node):
    """Whether a mapping has a key twice, or one that is no scalar: Python can't make a dict of it."""
    if isinstance(node, yaml.MappingNode):
        keys = [plain(key) for key, _ in node.value]
        is_odd = len(set(keys)) < len(keys) or not all(isinstance(key, yaml.ScalarNode) for key, _ in node.value)
        return is_odd or any(odd_key(value) for _, value in node.value)
    return isinstance(node, yaml.SequenceNode) and any(map(odd_key, node.value))


def is_blank(text):
    return not text.strip(b" \t\n\r\f\0")


def is_beginning(text):
    """Whether it may be the beginning of a text, which a close does not save."""
    *lines, last = text.split(b"\n")
    before = lambda line: is_blank(line) or line[:1] in (b"#", b"%")
    return is_blank(text) or text.startswith(b"#") and all(map(before, lines)) and (before(last) or last in (b"-", b"--"))


def may_be_saved(text, committed, blocks):
    """Whether a text is a valid tree, by rules of our own that are narrow enough for the texts that are written here."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    lines = text.split(b"\n")
    if lines[0].rstrip() != committed.split(b"\n")[0].rstrip() or b"\0" in text:
        return False
    comments = next((at for at, line in enumerate(lines) if not line.startswith(b"#")), len(lines) - 1)
    standard = [line for line in lines[:comments] if line.startswith(b"#ASDF_STANDARD")]
    if standard and not re.fullmatch(rb"#ASDF_STANDARD 1\.([0-6]\.0|([7-9]|[1-9]\d+)\.\d+)", standard[0]) or not lines[comments].startswith(b"%YAML 1.1"):
        return False
    end = re.search(rb"\n\.\.\.(?=\n|$)", text)
    if not end or text[end.end():] not in (b"", b"\n"):
        return False
    try:
        root = yaml.compose(text, LOADER)
        # the program's limit
        tags = (token.value[1] for token in yaml.scan(text, LOADER) if isinstance(token, yaml.TagToken))
        if any(len(tag) >= 4090 for tag in tags):
            return False
        if not isinstance(root, yaml.MappingNode) or not root.tag.startswith("tag:stsci.edu:asdf/core/asdf-") or odd_key(root):
            return False
        if lost_tags(root, arrays_of(committed)):
            return False
        before, now = known_arrays(committed), known_arrays(text)
        new, old = misread(text, now), misread(committed, before)
        if before and new - old and (before != now or len(new) > len(old)):
            return False
        return problem(text, blocks) is None
    except (yaml.YAMLError, KeyError, ValueError):
        return False


def known_arrays(text):
    """How the tag of arrays ends that Python knows under the standard in a text; None for a version that is not known."""
    standard = re.match(rb"(?:#.*\n)*?#ASDF_STANDARD +(\S+)", text)
    version = standard[1] if standard else b"1.0.0"
    if version == b"1.6.0" or re.fullmatch(rb"1\.([7-9]|[1-9]\d+)\.\d+", version):
        return b"core/ndarray-1.1.0"
    return b"core/ndarray-1.0.0" if re.fullmatch(rb"1\.[0-5]\.0", version) else None


def misread(text, known):
    """The arrays that Python reads as mappings, because it knows the other one of the two tags."""
    other = {b"core/ndarray-1.0.0": "1.1.0", b"core/ndarray-1.1.0": "1.0.0"}.get(known)
    return set(arrays_of(text, re.compile(rf"tag:stsci\.edu:asdf/core/ndarray-{other}$"))) if other else set()


def lost_tags(root, known):
    """Whether an array of the tree before is a mapping of another tag, or of none, now."""
    def at(node, path):
        for name in path:
            if isinstance(node, yaml.MappingNode):
                node = next((value for key, value in node.value if key.value == name), None)
            else:
                return None
        return node
    for path in known:
        node = at(root, path.split("/"))
        if isinstance(node, yaml.MappingNode) and not NDARRAY.match(node.tag):
            if {"source", "datatype", "shape"} <= {key.value for key, _ in node.value}:
                return True
    return False


# ---------------------------------------------------------------- what editors write

def new_text(random, blocks, streamed_at=None):
    """A valid tree for these blocks: most arrays of them, some notes, more or less filler."""
    body = [b"note: version %d" % random.randrange(10**6)]
    if random.random() < 0.3:
        body.append(b"# a comment of somebody's")
    if random.random() < 0.5:
        body.append(b"filler: '" + b"x" * random.choice([0, 3, 100, 500, 900, 4000, 9000, 30000]) + b"'")
    if random.random() < 0.3:
        body.append(b"people: [{name: N\xc3\xb8kken, age: %d}, {name: B}]" % random.randrange(100))
    grouped = []
    for number, block in enumerate(blocks):
        if random.random() < 0.8:
            for line in arrays_in(random, number, block, len(blocks)):
                (grouped if random.random() < 0.3 else body).append(line)
    if grouped:
        body += [b"group:", *(b"  " + line for line in grouped)]
    return HEAD + DIRECTIVES + b"--- !core/asdf-1.1.0\n" + b"\n".join(body) + b"\n...\n"


def arrays_in(random, number, block, count):
    """Lines that define arrays in a block."""
    for at in range(random.choice([1, 1, 2])):
        name, size = random.choice(sorted(TYPES.items()))
        size = int(size[1])
        offset = random.choice([0, 0, size, 8])
        room = (len(block.data) - offset) // size
        if room < 1:
            continue
        source = number if random.random() < 0.95 else number - count
        more = ""
        if block.streamed:
            shape = "['*']"
        elif room >= 8 and random.random() < 0.3:
            shape, more = f"[{room // 4}]", f", strides: [{size * 2}]"
        elif room >= 6 and random.random() < 0.3:
            shape = f"[{room // 3}, 3]"
        else:
            shape = f"[{random.randint(1, room)}]"
        more += f", offset: {offset}" if offset else ""
        order = random.choice(["little", "big"])
        yield (f"a{number}{'xyz'[at]}: !core/ndarray-1.0.0 {{source: {source}, datatype: {name}, byteorder: {order}, "
               f"shape: {shape}{more}}}").encode()


def spoilt(random, text, blocks):
    """The text with a fault that no save lets through."""
    body = text[:text.rindex(b"...\n")]
    kind = random.choice(["yaml", "key", "source", "outside", "end", "first line", "root tag", "utf-8", "behind", "no yaml line"])
    if kind == "yaml":
        return body + b"broken: [1, 2\n...\n"
    if kind == "key":
        return body + b"note: twice\n...\n"
    if kind == "source":
        return body + b"bad: !core/ndarray-1.0.0 {source: %d, datatype: uint8, byteorder: little, shape: [1]}\n...\n" % (len(blocks) + 1)
    if kind == "outside":
        length = len(blocks[0].data) + 1 if blocks else 1
        return body + b"bad: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [%d]}\n...\n" % length
    if kind == "end":
        return body
    if kind == "first line":
        return b"#ASDF 1.0.1\n" + text.split(b"\n", 1)[1]
    if kind == "root tag":
        return text.replace(b"--- !core/asdf-1.1.0", b"---")
    if kind == "utf-8":
        return body + b"latin: \xe9\n...\n"
    if kind == "behind":
        return text + b"more: 1\n"
    return text.replace(b"%YAML 1.1\n", b"")


def unbegun(random):
    """A text in which no document has begun."""
    return random.choice([b"", b"\n", b"  \n\n", b"#ASDF 1.0.0\n", b"#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n"])

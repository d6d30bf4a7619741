"""A GPT-2 in float64 and nothing but lists: the worked example's file, read and computed by hand."""
import math
import struct

SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind != 9:
            return self.take(SIZES[kind])
        of, n = self.take("I"), self.take("Q")
        return [self.value(of) for _ in range(n)]


def read(path):
    """Keys, and F32 tensors as lists (of lists), outermost first."""
    r = Reader(path.read_bytes())
    r.at = 8
    n_tensors, n_keys = r.take("Q"), r.take("Q")
    keys = {}
    for _ in range(n_keys):
        key = r.string().decode()
        keys[key] = r.value(r.take("I"))
    found = []
    for _ in range(n_tensors):
        name = r.string().decode()
        dims = [r.take("Q") for _ in range(r.take("I"))]
        assert r.take("I") == 0, "F32 only"
        found.append((name, dims, r.take("Q")))
    begin = -(-r.at // 32) * 32
    tensors = {}
    for name, dims, offset in found:
        flat = struct.unpack_from(f"<{math.prod(dims)}f", r.data, begin + offset)
        tensors[name] = [flat[i:i + dims[0]] for i in range(0, len(flat), dims[0])] if len(dims) == 2 else flat
    return keys, tensors


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def linear(w, x, bias=None):
    return [dot(row, x) + (bias[i] if bias else 0) for i, row in enumerate(w)]


def norm(x, gain, bias, eps=1e-5):
    mean = math.fsum(x) / len(x)
    var = math.fsum((v - mean) ** 2 for v in x) / len(x)
    return [(v - mean) / math.sqrt(var + eps) * g + b for v, g, b in zip(x, gain, bias)]


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def logits(t, ids, head=2):
    """[len(ids), vocabulary]: one block, one head."""
    out, ks, vs = [], [], []
    for pos, id in enumerate(ids):
        x = add(t["token_embd.weight"][id], t["position_embd.weight"][pos])
        qkv = linear(t["blk.0.attn_qkv.weight"], norm(x, t["blk.0.attn_norm.weight"], t["blk.0.attn_norm.bias"]))
        q = qkv[:head]
        ks.append(qkv[head:2 * head])
        vs.append(qkv[2 * head:])
        e = [math.exp(dot(q, k) / math.sqrt(head)) for k in ks]
        ctx = [math.fsum(w * v[d] for w, v in zip(e, vs)) / math.fsum(e) for d in range(head)]
        x = add(x, linear(t["blk.0.attn_output.weight"], ctx))
        h = norm(x, t["blk.0.ffn_norm.weight"], t["blk.0.ffn_norm.bias"])
        h = [gelu(v) for v in linear(t["blk.0.ffn_up.weight"], h, t["blk.0.ffn_up.bias"])]
        x = add(x, linear(t["blk.0.ffn_down.weight"], h, t["blk.0.ffn_down.bias"]))
        x = norm(x, t["output_norm.weight"], t["output_norm.bias"])
        out.append(linear(t["output.weight"], x, t["output.bias"]))
    return out

// Decodes columns from text: base64, deflate, byte planes. Counterpart of pack.py.

const ARRAYS = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  u8: BigUint64Array,
  f4: Float32Array,
  f8: Float64Array,
};

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** The columns of a payload: {name: typed array}. spec: [name, type, length] of each, in byte order. */
async function unpack(id, spec) {
  const packed = new Blob([bytesOf(byId(`data-${id}`).textContent)]).stream();
  const plain = packed.pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  const columns = {};
  let at = 0;
  for (const [name, type, length] of spec) {
    const width = Number(type[1]);
    columns[name] = joined(bytes.subarray(at, at + width * length), type, width, length);
    at += width * length;
  }
  return columns;
}

function joined(planes, type, width, length) {
  if (width === 1) return planes;
  if (type === "u2") {
    const out = new Uint16Array(length);
    for (let i = 0, high = length; i < length; i++, high++) out[i] = planes[i] | (planes[high] << 8);
    return out;
  }
  const bytes = new Uint8Array(width * length);
  for (let plane = 0; plane < width; plane++) {
    for (let i = 0, from = plane * length, to = plane; i < length; i++, from++, to += width) bytes[to] = planes[from];
  }
  const out = new ARRAYS[type](bytes.buffer);
  return type === "u8" ? Float64Array.from(out, Number) : out;
}

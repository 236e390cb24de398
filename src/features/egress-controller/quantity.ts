import { MAX_QUANTITY_LENGTH } from "#kube/coil";

const FACTORS: Readonly<Record<string, number>> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** Each character has one part of it to belong to, so that a text that is none is refused in one pass. */
const QUANTITY = /^([+-]?(?:\d+(?:\.\d*)?|\.\d+))([A-Za-z]{0,2}|[eE][+-]?\d{1,3})$/;

/** The number of a Kubernetes quantity (`100m`, `200Mi`, `1e3`, 2), rounded to a double. NaN if it is none, or longer than 64 characters. */
export function parseQuantity(text: unknown): number {
  if (typeof text === "number") return text;
  if (typeof text !== "string" || text.length > MAX_QUANTITY_LENGTH) return Number.NaN;
  const [, digits = "", suffix = ""] = QUANTITY.exec(text) ?? [];
  if (digits === "") return Number.NaN;
  const exponent = /^[eE]([+-]?\d{1,3})$/.exec(suffix)?.[1];
  if (exponent !== undefined) return Number(digits) * 10 ** Number(exponent);
  return Number(digits) * (Object.hasOwn(FACTORS, suffix) ? (FACTORS[suffix] ?? Number.NaN) : Number.NaN);
}

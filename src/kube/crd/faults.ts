/** One fault of an object, as API servers report it (metav1.StatusCause). */
export interface FieldFault {
  readonly reason:
    | "FieldValueInvalid"
    | "FieldValueRequired"
    | "FieldValueForbidden"
    | "FieldValueNotSupported"
    | "FieldValueDuplicate"
    | "FieldValueTooLong"
    | "FieldValueTooMany";
  /** The path of the field, such as `spec.subnets[1].ipv4`. */
  readonly field: string;
  /** The full text after the field, as apimachinery writes it: `Invalid value: "x": …`. */
  readonly message: string;
}

/** The value is not acceptable. */
export function invalid(field: string, value: unknown, why: string): FieldFault {
  return { reason: "FieldValueInvalid", field, message: `Invalid value: ${quote(value)}: ${why}` };
}

/** The value is missing. */
export function required(field: string, why: string): FieldFault {
  return { reason: "FieldValueRequired", field, message: `Required value${why === "" ? "" : `: ${why}`}` };
}

/** The change or value is not allowed. */
export function forbidden(field: string, why: string): FieldFault {
  return { reason: "FieldValueForbidden", field, message: `Forbidden: ${why}` };
}

/** The value is not one of a closed set. */
export function notSupported(field: string, value: unknown, supported: readonly string[]): FieldFault {
  const list = supported.map((one) => `"${one}"`).join(", ");
  return {
    reason: "FieldValueNotSupported",
    field,
    message: `Unsupported value: ${quote(value)}: supported values: ${list}`,
  };
}

/** The value occurs twice. */
export function duplicate(field: string, value: unknown): FieldFault {
  return { reason: "FieldValueDuplicate", field, message: `Duplicate value: ${quote(value)}` };
}

/** The value is too long. */
export function tooLong(field: string, limit: number): FieldFault {
  return { reason: "FieldValueTooLong", field, message: `Too long: may not be longer than ${limit}` };
}

/** The list has too many items. */
export function tooMany(field: string, count: number, why: string): FieldFault {
  return { reason: "FieldValueTooMany", field, message: `Too many: ${count}: ${why}` };
}

/** No such field is known. */
export function unknownField(field: string): FieldFault {
  return { reason: "FieldValueInvalid", field, message: "Unknown field" };
}

function quote(value: unknown): string {
  return JSON.stringify(value) ?? "null";
}

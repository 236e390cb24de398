import type { Expression } from "./expressions.ts";
import type { ByteString, ElementTable, ElementValue, PartType } from "./values.ts";

/** One change of a batch, as plain data. */
export type ElementChange =
  | {
      readonly op: "add";
      readonly set: string;
      readonly key: ByteString;
      readonly value?: ElementValue;
      readonly comment?: string;
      readonly keyEnd?: ByteString;
    }
  | { readonly op: "delete"; readonly set: string; readonly key: ByteString; readonly keyEnd?: ByteString }
  | { readonly op: "flush"; readonly set: string }
  | { readonly op: "empty"; readonly set: string; readonly chain: string }
  | { readonly op: "map"; readonly set: string; readonly key: readonly PartType[]; readonly value: readonly PartType[] }
  | { readonly op: "rule"; readonly set: string; readonly chain: string; readonly expressions: readonly Expression[] };

/** A change with its table, as a batch keeps it. */
export type RecordedChange = ElementChange & { readonly table: ElementTable };

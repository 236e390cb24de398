import { array, map, object, oneOf, type Static, string } from "#kube/crd";
import { MAX_LABEL_VALUE_LENGTH } from "./keys.ts";

/** The maximum number of entries of `matchLabels` that are read. */
export const MAX_MATCH_LABELS = 32;
/** The maximum number of entries of `matchExpressions`. */
export const MAX_MATCH_EXPRESSIONS = 16;
/** The maximum number of values of one expression. */
export const MAX_MATCH_VALUES = 64;
/** The maximum length of a label key: a prefix of 253 characters, a slash and a name of 63. */
const MAX_LABEL_KEY_LENGTH = 317;

/** A label selector of Kubernetes (`LabelSelector` of meta/v1), with bounds. */
export function labelSelectorSchema(description: string) {
  return object(
    {
      matchLabels: map(string({ maxLength: MAX_LABEL_VALUE_LENGTH }), {
        description: `Labels that must be present with these values; at most ${MAX_MATCH_LABELS}.`,
        maxProperties: MAX_MATCH_LABELS,
      }),
      matchExpressions: array(
        object(
          {
            key: string({ description: "The key of the label.", maxLength: MAX_LABEL_KEY_LENGTH }),
            operator: oneOf(["In", "NotIn", "Exists", "DoesNotExist"], {
              description: "How the label is compared with the values.",
            }),
            values: array(string({ maxLength: MAX_LABEL_VALUE_LENGTH }), {
              description: "At least one with In and NotIn, none with Exists and DoesNotExist.",
              maxItems: MAX_MATCH_VALUES,
            }),
          },
          { required: ["key", "operator"] },
        ),
        { description: "Conditions that must all be true.", maxItems: MAX_MATCH_EXPRESSIONS },
      ),
    },
    { description },
  );
}

/** A label selector as an object has it. */
export type LabelSelector = Static<ReturnType<typeof labelSelectorSchema>>;

/** Returns true if the selector matches the labels. */
export type LabelMatcher = (labels: Readonly<Record<string, string>> | undefined) => boolean;

/**
 * Pure: compiles a selector. An empty one matches everything, as in Kubernetes. A selector that breaks a bound or a rule matches nothing: an object may
 * have been stored when no CRD with these rules was there, and a condition that is left out would match more than its author wrote.
 */
export function compileSelector({ matchLabels = {}, matchExpressions = [] }: LabelSelector): LabelMatcher {
  const equal = Object.entries(matchLabels);
  if (equal.length > MAX_MATCH_LABELS || matchExpressions.length > MAX_MATCH_EXPRESSIONS) return () => false;
  const conditions: LabelMatcher[] = equal.map(
    ([key, value]) =>
      (labels) =>
        labelOf(labels, key) === value,
  );
  for (const expression of matchExpressions) {
    const condition = compileExpression(expression);
    if (condition === undefined) return () => false;
    conditions.push(condition);
  }
  return (labels) => conditions.every((condition) => condition(labels));
}

type Expression = NonNullable<LabelSelector["matchExpressions"]>[number];

/** `undefined` if the expression breaks a rule. */
function compileExpression({ key, operator, values = [] }: Expression): LabelMatcher | undefined {
  if (expressionFault({ operator, values }) !== undefined) return undefined;
  const set = new Set(values);
  switch (operator) {
    case "In":
      return (labels) => {
        const value = labelOf(labels, key);
        return value !== undefined && set.has(value);
      };
    case "NotIn":
      return (labels) => {
        const value = labelOf(labels, key);
        return value === undefined || !set.has(value);
      };
    case "Exists":
      return (labels) => labelOf(labels, key) !== undefined;
    case "DoesNotExist":
      return (labels) => labelOf(labels, key) === undefined;
    default:
      return undefined;
  }
}

/** Pure: why an expression is not valid; `undefined` if it is. */
export function expressionFault({
  operator,
  values = [],
}: Pick<Expression, "operator" | "values">): string | undefined {
  if (values.length > MAX_MATCH_VALUES) return `must have at most ${MAX_MATCH_VALUES} values`;
  const needsValues = operator === "In" || operator === "NotIn";
  if (needsValues && values.length === 0) return `must have at least one value with the operator ${operator}`;
  if (!needsValues && values.length > 0) return `must have no values with the operator ${operator}`;
  return undefined;
}

/** A label key is any text, also one that every object has a member of. */
function labelOf(labels: Readonly<Record<string, string>> | undefined, key: string): string | undefined {
  return labels !== undefined && Object.hasOwn(labels, key) ? labels[key] : undefined;
}

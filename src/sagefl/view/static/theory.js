// The closed-form part of the stopping map: SAGE-OS before any evidence is bought (sagefl.selection.planning).

export function confidenceRadius(anchors, degree, stages, delta, bound) {
  return bound * Math.sqrt(Math.log((2 * degree * stages) / delta) / (2 * anchors));
}

export function doubling(first, stages) {
  return Array.from({ length: stages }, (_, i) => first * 2 ** i);
}

// For each stage: when it certifies, gives up or asks on.
export function plannedStages({ degree, delta, probe_cost, first, stages, loss_bound }) {
  const schedule = doubling(first, stages);
  const largest = (loss_bound * (degree - 1)) / degree;
  return schedule.map((anchors, i) => {
    const width = 2 * confidenceRadius(anchors, degree, stages, delta, loss_bound);
    const cost = i + 1 < stages ? probe_cost * degree * (schedule[i + 1] - anchors) : null;
    const gossipUpto = cost === null || cost < width ? null : cost - width;
    const continues = cost !== null && (gossipUpto === null || gossipUpto < Math.min(width, largest));
    return { anchors, radius: width / 2, width, cost, gossipUpto, continues, canCertify: largest > width };
  });
}

export function dominance({ degree, probe_cost, first }) {
  return probe_cost * degree * first;
}

"""Bytes and messages that training moves, from workload and configuration alone."""

import numpy as np
import pandas as pd

from perfmodel.configuration import column, complete, refuse_unsupported
from perfmodel.errors import ConfigurationError, UnknownNameError
from perfmodel.workload import ELEMENT_BYTES

# Collectives on a flat ring of p ranks: steps, and bytes that each rank sends, as multiples of
# (p - 1) and (p - 1) / p times the message. The message is nccl-tests' size: for all_gather,
# reduce_scatter and all_to_all the whole buffer of one rank over all peers.
_RING = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}

SUPPORTED = (
    *("n_nodes", "gpus_per_node", "n_gpus", "batch_per_gpu", "accumulation_steps", "global_batch"),
    *("samples_to_target", "dtype"),
)


def ring_traffic(collective, message_bytes, n_ranks):
    r"""Steps of a collective on a flat ring, and bytes that each rank sends.

    An allreduce of :math:`n` bytes on :math:`p` ranks takes :math:`2 (p - 1)` steps, in each of
    which every rank sends :math:`n / p` bytes to its neighbour [1]_; an all-gather and a
    reduce-scatter are one half of it.

    Parameters
    ----------
    collective : {'all_reduce', 'all_gather', 'reduce_scatter'}
    message_bytes, n_ranks : array_like
        Size as nccl-tests defines it [B], and ranks.

    Returns
    -------
    n_steps, sent_bytes : ndarray
        Steps, and bytes that each rank sends in all of them [B].

    Raises
    ------
    UnknownNameError
        For another collective (also a `KeyError`).

    References
    ----------
    .. [1] P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
       workstations," J. Parallel Distrib. Comput., vol. 69, no. 2, pp. 117-124, 2009,
       doi:10.1016/j.jpdc.2008.09.002.

    Examples
    --------
    >>> ring_traffic("all_reduce", 1000.0, 4)
    (6, 1500.0)
    """
    if collective not in _RING:
        raise UnknownNameError("collective on a ring", collective, _RING)
    passes = _RING[collective]
    n_steps = passes * (n_ranks - 1)
    return n_steps, n_steps * message_bytes / n_ranks


def volumes(workload, configurations, per="step"):
    r"""Bytes and messages that a training job moves.

    Data parallelism sums the gradients with a ring allreduce over all ranks. Of :math:`G` bytes
    of gradients each of :math:`p` ranks sends :math:`2 (p - 1) / p \cdot G` a step, see
    `ring_traffic`. The ring visits the nodes one after the other, so that of the :math:`p`
    hops as many leave a node as there are nodes.

    Parameters
    ----------
    workload : Workload
    configurations : DataFrame or mapping
        Configuration columns; see `perfmodel.configurations`.
    per : {'step', 'epoch', 'run'}
        Period to count.

    Returns
    -------
    DataFrame
        The configurations, then ``communication_bytes``, ``intra_node_bytes``,
        ``inter_node_bytes``, ``messages`` (of one rank, mean over ranks),
        ``communication_bytes_total``, and ``read_bytes`` of the job where the workload's
        ``sample_bytes`` is known.

    Raises
    ------
    ConfigurationError
        If a configuration is contradictory or asks for what is not supported yet; it is named
        (also a `ValueError`).
    WorkloadError
        If the workload lacks a figure that is needed (also a `ValueError`).

    Examples
    --------
    >>> import perfmodel as pm
    >>> w = pm.Workload(name="mlp", parameters=25_000_000)
    >>> c = pm.configurations(n_nodes=[1, 4], gpus_per_node=1, batch_per_gpu=32)
    >>> volumes(w, c)[["n_nodes", "communication_bytes", "messages"]]
       n_nodes  communication_bytes  messages
    0        1                  0.0         0
    1        4          150000000.0        30
    """
    table = complete(configurations)
    refuse_unsupported(table, SUPPORTED, "volumes")
    n_gpus, n_nodes = table["n_gpus"], table["n_nodes"]
    sent, messages = [], []
    for dtype, n_ranks in zip(column(table, "dtype"), n_gpus, strict=True):
        buckets = workload.buckets(dtype)
        gradient_bytes = workload.parameters * ELEMENT_BYTES[dtype]
        n_steps, sent_bytes = ring_traffic("all_reduce", gradient_bytes, n_ranks)
        sent.append(float(sent_bytes))
        messages.append(n_steps * len(buckets))
    steps = steps_in(per, workload, table)
    sent = np.array(sent) * steps
    leaving = np.where(n_nodes > 1, n_nodes / n_gpus, 0.0)
    table["communication_bytes"] = sent
    table["intra_node_bytes"] = sent * (1 - leaving)
    table["inter_node_bytes"] = sent * leaving
    table["messages"] = np.array(messages) * steps
    table["communication_bytes_total"] = sent * n_gpus
    if workload.sample_bytes is not None and "global_batch" in table:
        table["read_bytes"] = table["global_batch"] * workload.sample_bytes * steps
    return table


def steps_in(per, workload, table):
    """Optimiser steps of a period: an integer, or a Series with one for each configuration.

    A run's samples are ``samples_to_target``, else
    ``samples_to_target_min · (1 + global_batch / critical_batch)`` [1]_.

    References
    ----------
    .. [1] S. McCandlish et al., "An empirical model of large-batch training," 2018,
       arXiv:1812.06162.
    """
    if per == "step":
        return 1
    if per not in ("epoch", "run"):
        raise UnknownNameError("period", per, ("step", "epoch", "run"))
    if "global_batch" not in table:
        raise ConfigurationError(f"per={per!r} needs batch_per_gpu or global_batch; add it")
    if per == "epoch":
        (samples,) = workload.require("dataset_samples")
    elif "samples_to_target" in table:
        samples = pd.to_numeric(table["samples_to_target"])
    elif None in (workload.samples_to_target_min, workload.critical_batch):
        raise ConfigurationError(
            "per='run' needs the column samples_to_target, or a workload with "
            "samples_to_target_min and critical_batch; add either"
        )
    else:
        growth = 1 + table["global_batch"] / workload.critical_batch
        samples = workload.samples_to_target_min * growth
    return np.ceil(samples / table["global_batch"]).astype("int64")

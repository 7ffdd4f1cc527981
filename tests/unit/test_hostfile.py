import pytest

from planner.errors import InputError
from planner.run.hostfile import Host, hostfile_text, read_hostfile

NODES = (Host("node1", 8), Host("node2", 8))


@pytest.mark.parametrize(
    "text",
    [
        b"node1 slots=8\nnode2 slots=8\n",
        b"node1 slots=8\r\nnode2 slots=8",
        b"# the new ones\n\nnode1:8   # front\n  node2:8\n",
        b"node1\nnode2\n",
        b"\xef\xbb\xbfnode1 slots = 8\nnode2\tslots=8 max_slots=8\n",
    ],
)
def test_hostfiles_of_real_life_are_read(tmp_path, text):
    path = tmp_path / "hostfile"
    path.write_bytes(text)
    assert read_hostfile(path, ranks_per_node=8) == NODES


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "hostfile"
    path.write_text(hostfile_text(NODES))
    assert path.read_text() == "node1 slots=8\nnode2 slots=8\n"
    assert read_hostfile(path, ranks_per_node=1) == NODES


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node1 slots=4\nnode2 slots=1\n", "unequal slots: node1 has 4, node2 has 1"),
        ("node1 slots=8\nnode2 8\n", "line 2: 'node2 8' is not understood"),
        ("node1 slots=0\n", "line 1"),
        ("node1 slots=eight\n", "line 1"),
        ("node1\n\nnode1\n", "line 3: the host node1 is there already"),
        ("# nothing\n", "names no host"),
    ],
)
def test_other_hostfiles_are_refused_with_their_line(tmp_path, text, complaint):
    path = tmp_path / "hostfile"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_hostfile(path, ranks_per_node=8)


def test_a_hostfile_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read the hostfile"):
        read_hostfile(tmp_path / "none", ranks_per_node=8)

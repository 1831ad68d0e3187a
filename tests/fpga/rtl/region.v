// SPDX-License-Identifier: Apache-2.0
// A region of the board: one unit (UNIT0), or two (UNIT0 and UNIT1), that share its memory port. An image is this file with its units defined.
module region (
	input clk, input rst,
	input wr_valid, input [3:0] wr_window, input [4:0] wr_reg, input [63:0] wr_data,
	input [3:0] rd_window, input [4:0] rd_reg, output [63:0] rd_data,
	// The memory port: a request is taken in the cycle in which ready is there too; answers to reads come in order.
	output req, output we, output [63:0] addr, output [511:0] data, output [15:0] lanes, output from,
	input ready, input answer, input answer_to, input [511:0] answer_data
);
	wire [1:0] reqs, wes;
	wire [63:0] addrs[0:1], reads[0:1];
	wire [511:0] datas[0:1];
	wire [15:0] lanesets[0:1];
	reg last;
	// Both ask: whose turn it is.
	wire chosen = reqs == 2'b11 ? !last : reqs[1];

	`UNIT0 unit0 (
		.clk(clk), .rst(rst), .wr_valid(wr_valid && wr_window == 0), .wr_reg(wr_reg), .wr_data(wr_data),
		.rd_reg(rd_reg), .rd_data(reads[0]), .req(reqs[0]), .we(wes[0]), .addr(addrs[0]), .data(datas[0]), .lanes(lanesets[0]),
		.taken(reqs[0] && !chosen && ready), .answer(answer && !answer_to), .answer_data(answer_data));
`ifdef UNIT1
	`UNIT1 unit1 (
		.clk(clk), .rst(rst), .wr_valid(wr_valid && wr_window == 1), .wr_reg(wr_reg), .wr_data(wr_data),
		.rd_reg(rd_reg), .rd_data(reads[1]), .req(reqs[1]), .we(wes[1]), .addr(addrs[1]), .data(datas[1]), .lanes(lanesets[1]),
		.taken(reqs[1] && chosen && ready), .answer(answer && answer_to), .answer_data(answer_data));
`else
	assign reqs[1] = 0;
	assign wes[1] = 0;
	assign addrs[1] = 0;
	assign reads[1] = 0;
	assign datas[1] = 0;
	assign lanesets[1] = 0;
`endif

	assign rd_data = rd_window == 0 ? reads[0] : rd_window == 1 ? reads[1] : 64'd0;
	assign req = |reqs;
	assign we = wes[chosen];
	assign addr = addrs[chosen];
	assign data = datas[chosen];
	assign lanes = lanesets[chosen];
	assign from = chosen;

	always @(posedge clk)
		if (rst) last <= 0;
		else if (req && ready) last <= chosen;
endmodule
